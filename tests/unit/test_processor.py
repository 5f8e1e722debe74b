"""What is known of the CPU, and which baselines it keeps."""

import pytest

from trainbox import processor
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError, UsageError

CPU = Selection(kind="cpu", replicas=1, visible_devices="", names=("CPU",), notice="training on the CPU")
GPU = Selection(kind="gpu", replicas=1, visible_devices="GPU-a", names=("A",), notice="training on 1 GPU")
HASWELL = "model name\t: Haswell\nflags\t\t: fpu sse4_1 fma avx avx2 ht\n\nmodel name\t: B\nflags\t\t: x\n"


@pytest.fixture
def cpuinfo(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text(HASWELL)
    return path


def test_a_baseline_that_the_cpu_has_is_kept(cpuinfo):
    """AVX2 on a Haswell; native needs nothing, not even a kernel that tells."""
    processor.refuse(RunConfig(cpu_baseline="avx2"), CPU, cpuinfo=cpuinfo)
    processor.refuse(RunConfig(), CPU, cpuinfo=cpuinfo / "nowhere")


def test_a_baseline_above_the_cpu_is_refused(cpuinfo):
    """oneDNN would silently take the best that is there, and compute other bits."""
    with pytest.raises(DevicesError) as caught:
        processor.refuse(RunConfig(cpu_baseline="avx512"), CPU, cpuinfo=cpuinfo)
    assert str(caught.value) == (
        "--cpu-baseline avx512 needs a CPU with avx2, fma, avx512f, avx512cd, avx512dq, avx512bw, avx512vl; Haswell "
        "lacks avx512f, avx512cd, avx512dq, avx512bw, avx512vl: use an older baseline, or another machine"
    )


def test_a_baseline_is_refused_on_gpus(cpuinfo):
    """It says nothing of what a GPU computes."""
    with pytest.raises(UsageError) as caught:
        processor.refuse(RunConfig(cpu_baseline="avx2"), GPU, cpuinfo=cpuinfo)
    assert str(caught.value) == (
        "--cpu-baseline avx2 is for training on the CPU, and this run takes GPUs; drop it, or say --device cpu"
    )


def test_the_first_cpu_is_told_by_what_can_decide_bits(cpuinfo, tmp_path):
    """Name and instruction sets; where the kernel tells nothing, the architecture and nothing."""
    assert processor.name(cpuinfo) == "Haswell"
    assert processor.instruction_sets(cpuinfo) == "sse4_1 avx fma avx2"
    assert processor.name(tmp_path / "nowhere") == processor.platform.machine()
    assert processor.instruction_sets(tmp_path / "nowhere") == ""


def test_caches_are_told_without_those_of_instructions(tmp_path):
    """In the order of the kernel; an index that cannot be read is left out."""
    found = [("Data", "32K"), ("Instruction", "64K"), ("Unified", "256K"), ("Unified", "")]
    for index, (kind, size) in enumerate(found):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "type").write_text(f"{kind}\n")
        if size:
            (folder / "size").write_text(f"{size}\n")
    assert processor.caches(tmp_path) == "32K 256K"
    assert processor.caches(tmp_path / "nowhere") == ""
