"""What is said of a first step that does not come."""

import threading
import time

import pytest

from trainbox.first_step import FirstStepWatch, advice, shm_bytes

COMPILING = "on a GPU newer than TensorFlow's kernels the first start compiles for minutes, and keeps what it made"


def test_a_phase_that_does_not_end_is_told_where_it_is_and_then_rarely():
    """The advice comes once, each phase has its own time, and after the first step nothing is said."""
    told, third = [], threading.Event()

    def tell(line):
        told.append(line)
        if len(told) == 3:
            third.set()

    watch = FirstStepWatch(seconds=0.05, tell=tell, advice="look at this")
    watch.phase("building the model")
    while len(told) < 2:
        time.sleep(0.005)
    watch.phase("compiling")
    assert third.wait(30)
    watch.done()
    said = len(told)
    time.sleep(0.3)
    assert told[0] == "no first step yet: building the model for 0.05 s; look at this"
    assert told[1] == "no first step yet: building the model for 0.25 s"
    # Under load the thread may have said one more of the first phase.
    assert told[-1].startswith(
        ("no first step yet: compiling for 0.05 s", "no first step yet: building the model for 1")
    )
    assert len(told) == said


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_first_step_that_comes_in_time_is_not_spoken_of(seconds):
    """Nor any where nobody is to watch."""
    told = []
    watch = FirstStepWatch(seconds=seconds, tell=told.append, advice="")
    watch.phase("compiling")
    watch.done()
    time.sleep(0.05)
    assert told == []


@pytest.mark.parametrize(
    ("kind", "replicas", "environ", "shm", "line"),
    [
        ("cpu", 4, {}, 64 * 2**20, "nothing is wrong if the CPU is busy: a large model compiles long"),
        ("gpu", 1, {"NCCL_DEBUG": "INFO"}, None, COMPILING),
        (
            "gpu",
            2,
            {"NCCL_SHM_DISABLE": "0", "NCCL_DEBUG": "INFO", "PATH": "/bin"},
            64 * 2**20,
            COMPILING
            + "; GPUs that are idle, or at 100 % with little power, cannot reach one another: all-reduce is auto, "
            "NCCL's settings: NCCL_DEBUG=INFO NCCL_SHM_DISABLE=0; try NCCL_P2P_DISABLE=1 (an IOMMU or PCI ACS keeps "
            "GPUs from one another), in a container --shm-size 1g (here 64 MiB), or --all-reduce hierarchical",
        ),
        ("gpu", 2, {}, 2**33, "NCCL's settings: none; try NCCL_P2P_DISABLE=1 (an IOMMU or PCI ACS keeps GPUs from one"),
    ],
)
def test_the_advice_names_what_is_in_effect(kind, replicas, environ, shm, line):
    """NCCL's settings, and shared memory if there is little."""
    assert line in advice(kind=kind, replicas=replicas, all_reduce="auto", environ=environ, shm=shm)


def test_shared_memory_that_is_not_there_is_unknown(tmp_path):
    """And that of a folder is its disk's."""
    assert shm_bytes(tmp_path / "none") is None
    assert shm_bytes(tmp_path) > 0
