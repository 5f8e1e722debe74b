"""Which devices a run takes: its words, its environment, and never a silent run on the CPU."""

import dataclasses

import pytest

from trainbox.config import RunConfig
from trainbox.devices import Gpu, MigInstance, Selection, choose, select
from trainbox.errors import DevicesError, UsageError

U0, U1, U2, U3 = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "abcd")
FOUR = [
    Gpu(index=index, uuid=uuid, name="NVIDIA A100", driver="570.86.10", pci_address=f"0000:{index:02x}:00.0")
    for index, uuid in enumerate([U0, U1, U2, U3])
]
HERE = "0 NVIDIA A100 (GPU-aaaaaaaa), 1 NVIDIA A100 (GPU-bbbbbbbb)"
ALL_HERE = f"this process sees 4 of 4 GPUs: {HERE}, 2 NVIDIA A100 (GPU-cccccccc), 3 NVIDIA A100 (GPU-dddddddd)"


def selected(*, machine=FOUR, visible=None, **words):
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return select(RunConfig(**words), gpus=machine, environ=environ)


def refused(error, **case):
    with pytest.raises(error) as caught:
        selected(**case)
    return str(caught.value)


def test_every_visible_gpu_is_taken():
    """Without words a run takes all GPUs, by UUID, one replica each."""
    assert selected() == Selection(
        kind="gpu",
        replicas=4,
        visible_devices=f"{U0},{U1},{U2},{U3}",
        names=("NVIDIA A100",) * 4,
        notice="training on 4 GPUs: NVIDIA A100 (GPU-aaaaaaaa), NVIDIA A100 (GPU-bbbbbbbb), "
        "NVIDIA A100 (GPU-cccccccc), NVIDIA A100 (GPU-dddddddd)",
        driver="570.86.10",
    )


@pytest.mark.parametrize(
    ("visible", "words", "taken"),
    [
        ("2,1", {}, [U2, U1]),
        (None, {"gpus": 2}, [U0, U1]),
        ("3,2,1", {"gpus": 2}, [U3, U2]),
        (None, {"devices": "0,2"}, [U0, U2]),
        (None, {"devices": " 2 , 0 "}, [U2, U0]),
        ("3,1", {"devices": "1"}, [U1]),
        (None, {"devices": "GPU-cccc,0"}, [U2, U0]),
        (U3, {"devices": U3, "device": "gpu"}, [U3]),
    ],
)
def test_words_choose_among_what_the_environment_allows(visible, words, taken):
    """--gpus takes the first visible ones; --devices numbers them as this process sees them."""
    selection = selected(visible=visible, **words)
    assert selection.visible_devices == ",".join(taken)
    assert selection.replicas == len(selection.names) == len(taken)


def test_the_notice_counts_and_names_the_gpus():
    """One line says how many of the machine's GPUs are taken and which."""
    assert selected(machine=FOUR[:2], visible="1").notice == "training on 1 GPU of 2: NVIDIA A100 (GPU-bbbbbbbb)"


def test_a_list_that_ends_early_is_told_in_the_notice():
    """A run on fewer GPUs than were named says which entry is to blame."""
    assert selected(machine=FOUR[:2], visible="0,x").notice == (
        "training on 1 GPU of 2: NVIDIA A100 (GPU-aaaaaaaa); note: CUDA_VISIBLE_DEVICES='0,x': "
        "its entry 'x' is neither a number nor a UUID"
    )


def test_a_carriage_return_is_told_in_the_notice():
    """The run goes on, and the user learns of the stray character."""
    assert selected(visible="0\r").notice.endswith(
        "; note: CUDA_VISIBLE_DEVICES='0\\r': it holds a carriage return, as files with Windows line ends have"
    )


def test_a_machine_without_gpus_trains_on_the_cpu_and_says_so():
    """No GPU is no error, whatever CUDA_VISIBLE_DEVICES says."""
    assert selected(machine=[], visible="0,1") == Selection(
        kind="cpu",
        replicas=1,
        visible_devices="",
        names=("CPU",),
        notice="no GPU on this machine: training on the CPU",
    )


def test_the_cpu_can_be_asked_for_and_split():
    """--device cpu hides the GPUs; --logical-devices gives as many replicas."""
    assert selected(device="cpu").notice == "training on the CPU"
    selection = selected(device="cpu", logical_devices=4)
    assert (selection.kind, selection.replicas, selection.visible_devices) == ("cpu", 4, "")
    assert selection.names == ("CPU",) * 4
    assert selection.notice == "training on the CPU, split into 4 logical devices"


def test_one_device_is_the_first_or_the_named_one():
    """--strategy one leaves the others alone."""
    every = selected()
    assert every.replicas == 4
    assert selected(strategy="one").visible_devices == every.visible_devices.split(",")[0]
    assert selected(strategy="one", devices="2").visible_devices == every.visible_devices.split(",")[2]
    assert selected(strategy="one", device="cpu", logical_devices=4).replicas == 1


@pytest.mark.parametrize(
    ("visible", "cause"),
    [
        ("", "'' hides all 4 GPUs of this machine: it is set and empty, which is not the same as not set"),
        ("-1", "'-1' hides all 4 GPUs of this machine: its entry '-1' is negative, which hides all that follow"),
        (
            "NoDevFiles",
            "'NoDevFiles' hides all 4 GPUs of this machine: its entry 'NoDevFiles' is Slurm's word for a job without "
            "GPUs: ask for them with --gres=gpu:N or --gpus=N",
        ),
        (
            '"0,1"',
            "'\"0,1\"' hides all 4 GPUs of this machine: its entry '\"0' holds quote characters, which docker's "
            "--env-file keeps: write the value without them",
        ),
    ],
)
@pytest.mark.parametrize("device", ["auto", "gpu"])
def test_gpus_hidden_to_the_last_one_are_an_error_that_names_the_cause(visible, cause, device):
    """Never a silent run on the CPU of a machine that has GPUs."""
    assert refused(DevicesError, visible=visible, device=device) == (
        f"CUDA_VISIBLE_DEVICES={cause}; --device cpu trains on the CPU"
    )


def test_a_gpu_in_mig_mode_without_instances_is_an_error():
    """The machine has a GPU that nothing can run on, and the message says why."""
    assert refused(DevicesError, machine=[dataclasses.replace(FOUR[0], mig=())]) == (
        "the GPU of this machine cannot be used: a GPU in MIG mode without a MIG instance computes nothing; "
        "--device cpu trains on the CPU"
    )


@pytest.mark.parametrize("words", [{"device": "gpu"}, {"gpus": 2}, {"devices": "0"}])
def test_gpus_asked_for_on_a_machine_without_any(words):
    """Words that ask for GPUs are never answered with the CPU."""
    said = " ".join(f"--{name} {value}" for name, value in words.items())
    assert refused(DevicesError, machine=[], **words) == (
        f"{said}: no GPU on this machine, no NVIDIA driver answers; --device cpu trains on the CPU"
    )


def test_more_gpus_than_there_are_names_those_that_are_there():
    """One line of inventory, with the variable that took the others away."""
    assert refused(DevicesError, gpus=5) == f"--gpus 5: {ALL_HERE}"
    assert refused(DevicesError, visible="0,1", gpus=3) == (
        f"--gpus 3: this process sees 2 of 4 GPUs: {HERE} (CUDA_VISIBLE_DEVICES='0,1')"
    )


def test_devices_that_are_not_there_or_hidden():
    """A number out of range, an unknown UUID and one that the environment hides: exit 3 with the inventory."""
    assert refused(DevicesError, devices="0,9") == (
        f"--devices 0,9: '9' is not among the GPUs that this process sees; {ALL_HERE}"
    )
    assert "'GPU-dddd' is not among" in refused(DevicesError, visible="0,1", devices="GPU-dddd")
    assert "'99999999999999999999' is not among" in refused(DevicesError, devices="9" * 20)
    assert "'GPU-' fits 4 GPUs; this process sees" in refused(DevicesError, devices="GPU-")


def test_a_list_of_devices_that_cannot_be_read():
    """Words that are no list of numbers or UUIDs, or name a GPU twice: exit 2."""
    assert refused(UsageError, devices="0-2") == (
        "--devices '0-2': '0-2' is neither a number nor a UUID; write 0,2 or GPU-…,GPU-…"
    )
    assert "'' is neither a number nor a UUID" in refused(UsageError, devices="0,")
    assert refused(UsageError, devices="1,GPU-bbbb") == (
        "--devices 1,GPU-bbbb: 'GPU-bbbb' names a GPU that is named before"
    )


def test_two_mig_instances_are_one_device():
    """A process can use one slice: the second is told in the notice, and asking for two fails."""
    slices = tuple(
        MigInstance(uuid=f"MIG-{letter * 8}-0", gpu_instance=1, compute_instance=0, name="A100 MIG 1g.5gb")
        for letter in "ef"
    )
    machine = [dataclasses.replace(FOUR[0], mig=slices)]
    visible = f"{slices[1].uuid},{slices[0].uuid}"
    selection = selected(machine=machine, visible=visible)
    assert (selection.replicas, selection.visible_devices, selection.names) == (
        1,
        "MIG-ffffffff-0",
        ("A100 MIG 1g.5gb",),
    )
    assert selection.notice == (
        f"training on 1 GPU: A100 MIG 1g.5gb (MIG-ffffffff); note: CUDA_VISIBLE_DEVICES='{visible}': "
        "one process can use one MIG instance and no other device beside it"
    )
    assert refused(DevicesError, machine=machine, visible=visible, gpus=2).startswith(
        "--gpus 2: this process sees 1 of 1 GPUs: 0 A100 MIG 1g.5gb (MIG-ffffffff) (CUDA_VISIBLE_DEVICES="
    )


def test_a_faulty_gpu_is_refused_unless_it_is_not_chosen():
    """A lost card stops the run that would have used it, by name; the others can be chosen."""
    lost = Gpu(index=2, uuid="", name="GPU", pci_address="", fault="GPU is lost")
    machine = [*FOUR[:2], lost]
    assert refused(DevicesError, machine=machine) == (
        "GPU 2 of this machine cannot be used (GPU is lost): reset it or reboot, or choose others by --devices; "
        "--device cpu trains on the CPU"
    )
    assert selected(machine=machine, devices="0,1").visible_devices == f"{U0},{U1}"


def test_in_cudas_own_order_a_number_is_passed_on_as_a_number():
    """With the user's CUDA_DEVICE_ORDER=FASTEST_FIRST only CUDA knows which GPU number 1 is."""
    environ = {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    assert select(RunConfig(gpus=1), gpus=FOUR, environ=environ).visible_devices == "1"
    assert select(RunConfig(devices="GPU-cc"), gpus=FOUR, environ={**environ, "CUDA_VISIBLE_DEVICES": U2}) == select(
        RunConfig(devices="GPU-cc"), gpus=FOUR, environ={"CUDA_VISIBLE_DEVICES": U2}
    )


def test_choosing_looks_at_this_machine():
    """The front door discovers and selects; here with the CPU asked for, so that any machine gives the same."""
    assert choose(RunConfig(device="cpu"), environ={"CUDA_VISIBLE_DEVICES": "0"}).notice == "training on the CPU"
