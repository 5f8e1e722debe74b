"""What TensorFlow's own list is compared with by the doctor: another process, which may say nothing."""

from trainbox.jobs import examining

TWO = "".join(
    f"gpu 0:{n}b.0 0 -1 85899345920 9.0 GPU-{n}0000000-0000-0000-0000-000000000000 NVIDIA H100\n" for n in (1, 2)
)


def test_tensorflow_is_asked_in_another_process(nvml, monkeypatch):
    """What `trainbox devices --tensorflow` finds, with its reason."""
    for name, value in nvml(TWO).items():
        monkeypatch.setenv(name, value)
    found = examining._compare()
    assert found.count == 0
    assert found.difference.startswith("this process may use 2 GPUs and TensorFlow lists 0: tensorflow")


def test_no_answer_and_one_that_is_none(monkeypatch, tmp_path):
    """It waits no longer than it was told, and passes on the last word of a process that fails."""
    assert examining._compare(0.01).difference == "no answer in 0.01 s"
    monkeypatch.setenv("TRAINBOX_PROGRES", "plain")
    found = examining._compare()
    assert (found.count, found.difference) == (
        None,
        "it ended with 2: trainbox: environment TRAINBOX_PROGRES is no option of trainbox; did you mean "
        "TRAINBOX_PROGRESS?",
    )
