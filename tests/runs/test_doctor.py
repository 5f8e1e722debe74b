"""`trainbox doctor` as a command: what the field's cases look like, and how it ends."""

import json

import pytest

TWO = "driver 580.65.06\n" + "".join(
    f"gpu 0:{n}b.0 0 -1 85899345920 9.0 GPU-{n}0000000-0000-0000-0000-000000000000 NVIDIA H100\n" for n in (1, 2)
)
ONE = "".join(TWO.splitlines(keepends=True)[:2])
FOUR = TWO + TWO.partition("\n")[2].replace("GPU-1", "GPU-3").replace("GPU-2", "GPU-4").replace("0:", "1:")


def examined(place, variables=None, *words, **environ):
    """How `trainbox doctor --json` ends, and the findings of each check that are not in order."""
    environ = {"TRAINBOX_DEVICE": "auto", **(variables or {}), **environ}
    command = place.trainbox("doctor", "--json", *words, fresh=True, **environ)
    assert command.err == ""
    data = json.loads(command.out)
    told = {check["check"]: [one for one in check["findings"] if one["severity"] != "ok"] for check in data["checks"]}
    return command.wait(), {name: [one["message"] for one in found] for name, found in told.items() if found}


def test_gpus_that_a_build_for_cpus_does_not_use(place, nvml):
    """Exit 3 and pure JSON: the driver lists two and TensorFlow none."""
    code, told = examined(place, nvml(TWO), TF_CPP_MIN_LOG_LEVEL="3")
    assert code == 3
    assert told["GPU libraries"] == ["tensorflow-cpu 2.21.0 is built without CUDA and uses no GPU"]
    assert told["TensorFlow"] == [
        "this process may use 2 GPUs and TensorFlow lists 0: tensorflow-cpu 2.21.0 is built without CUDA"
    ]


def test_a_machine_without_gpus_is_in_order(place):
    """Exit 0; so is a run for the CPU on a machine with GPUs."""
    code, told = examined(place, TRAINBOX_DEVICE="cpu")
    # What limits the tests themselves is a note.
    assert (code, set(told) - {"limits"}) == (0, set())


def test_docker_has_renumbered_the_gpu(place, nvml):
    """One GPU present, none visible: the host's index out of range in the container."""
    code, told = examined(place, nvml(ONE), NVIDIA_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="1")
    assert code == 3
    assert told["visible devices"] == [
        "1 GPU present, 0 visible: CUDA_VISIBLE_DEVICES='1': its entry '1' is out of range: numbers here are 0 and no "
        "other (a container's restart at 0: use UUIDs, or unset it)"
    ]


@pytest.mark.parametrize(
    ("value", "word"),
    [('"0,1"', "holds quote characters"), ("0,1\r", "a carriage return"), ("NoDevFiles", "--gres=gpu:N or --gpus=N")],
)
def test_a_value_that_is_odd_without_any_gpu(place, value, word):
    """No GPU is needed to see it."""
    _, told = examined(place, CUDA_VISIBLE_DEVICES=value)
    (message,) = told["visible devices"]
    assert message.startswith(f"CUDA_VISIBLE_DEVICES={value!r}: ")
    assert word in message


def test_slurm_gave_fewer_gpus_than_are_visible(place, nvml):
    """As in a container that was started with --cleanenv."""
    _, told = examined(place, nvml(FOUR), SLURM_JOB_GPUS="2,3")
    (message,) = told["visible devices"]
    assert message.startswith("Slurm gave 2 GPUs and this process may use 4: pass on the job's CUDA_VISIBLE_DEVICES")


def test_what_dotenv_sets_is_told_and_holds(place, nvml):
    """A `.env` that hides all GPUs is found as the cause."""
    (place.folder / ".env").write_text("CUDA_VISIBLE_DEVICES=-1\n")
    try:
        code, told = examined(place, nvml(ONE))
    finally:
        (place.folder / ".env").unlink()
    assert code == 3
    assert told[".env"] == [".env sets CUDA_VISIBLE_DEVICES"]
    assert told["visible devices"][0].startswith("1 GPU present, 0 visible: CUDA_VISIBLE_DEVICES='-1'")


def test_for_a_person(place, nvml):
    """A line for each finding, its remedy below, and the verdict last; without control characters in a file."""
    command = place.trainbox("doctor", fresh=True, TRAINBOX_DEVICE="auto", CUDA_VISIBLE_DEVICES="", **nvml(ONE))
    assert (command.wait(), command.err) == (3, "")
    lines = command.out.splitlines()
    at = lines.index(
        "FAILURE  visible devices: 1 GPU present, 0 visible: CUDA_VISIBLE_DEVICES='': it is set and empty, which is "
        "not the same as not set"
    )
    assert lines[at + 1] == "         → unset CUDA_VISIBLE_DEVICES, or take what trainbox devices lists"
    assert lines[-1].startswith("19 checks: ")
    assert "\x1b" not in command.out
    coloured = place.trainbox("doctor", "--device", "cpu", fresh=True, FORCE_COLOR="1")
    assert coloured.wait() == 0
    assert "\x1b[32mok     \x1b[0m  limits, folders, " in coloured.out
    plain = place.trainbox("doctor", "--device", "cpu", fresh=True, FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in plain.out
