"""The stub of the driver's library itself: it answers the real binding as a driver would, and changes as it is told."""

import json
import os
import subprocess
import sys

import pytest

TWO = """# two GPUs that see each other through a bridge
driver 570.86.10
cuda 12080
gpu 0:3b.0 0 -1 85899345920 9.0 GPU-a0 NVIDIA H100
used 1073741824
utilization 97 40
power 312500
temperature 61
clocks 1980 1980 2619 1650
throttle 0x44
ecc 1 3 0
retired 2 1 1
remapped 1 2 0 1
process 4242 1048576
process 4243 2097152
p2p 1 3
ancestor 1 30
gpu 0:af.0 0 -1 85899345920 9.0 GPU-b0 NVIDIA H100
utilization - -
"""


@pytest.fixture
def ask(nvml):
    """The values of Python expressions, in one process; `nvml` is the binding, `a` and `b` are the GPUs."""

    def asked(description, *expressions):
        program = (
            "import json, sys, time\nimport pynvml as nvml\nnvml.nvmlInit()\n"
            "def value(expression):\n"
            "    try: return eval(expression)\n"
            "    except nvml.NVMLError as error: return str(error)\n"
            "a, b = (nvml.nvmlDeviceGetHandleByUUID(f'GPU-{x}0') for x in 'ab')\n"
            "print(json.dumps([value(expression) for expression in sys.argv[1:]]))"
        )
        words = [sys.executable, "-c", program, *expressions]
        child = subprocess.run(words, env={**os.environ, **nvml(description)}, capture_output=True, text=True)
        return json.loads(child.stdout) if child.returncode == 0 else child.stderr

    return asked


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("nvml.nvmlSystemGetCudaDriverVersion()", 12080),
        ("[nvml.nvmlDeviceGetMemoryInfo(a).total, nvml.nvmlDeviceGetMemoryInfo(a).used]", [85899345920, 1073741824]),
        ("[nvml.nvmlDeviceGetUtilizationRates(a).gpu, nvml.nvmlDeviceGetUtilizationRates(a).memory]", [97, 40]),
        ("nvml.nvmlDeviceGetUtilizationRates(b).gpu", "Not Supported"),
        ("nvml.nvmlDeviceGetPowerUsage(a)", 312500),
        ("nvml.nvmlDeviceGetPowerUsage(b)", "Not Supported"),
        ("nvml.nvmlDeviceGetTemperature(a, nvml.NVML_TEMPERATURE_GPU)", 61),
        ("nvml.nvmlDeviceGetTemperatureV(a, nvml.NVML_TEMPERATURE_GPU)", 61),
        ("[nvml.nvmlDeviceGetClockInfo(a, kind) for kind in range(4)]", [1980, 1980, 2619, 1650]),
        ("nvml.nvmlDeviceGetCurrentClocksThrottleReasons(a)", 0x44),
        ("[nvml.nvmlDeviceGetTotalEccErrors(a, kind, 0) for kind in range(2)]", [3, 0]),
        ("[len(nvml.nvmlDeviceGetRetiredPages(a, cause)) for cause in range(2)]", [2, 1]),
        ("nvml.nvmlDeviceGetRetiredPagesPendingStatus(a)", 1),
        ("nvml.nvmlDeviceGetRemappedRows(a)", [1, 2, 0, 1]),
        (
            "[[p.pid, p.usedGpuMemory] for p in nvml.nvmlDeviceGetComputeRunningProcesses(a)]",
            [[4242, 1048576], [4243, 2097152]],
        ),
        ("nvml.nvmlDeviceGetComputeRunningProcesses(b)", []),
        ("[nvml.nvmlDeviceGetP2PStatus(*pair, 0) for pair in ((a, b), (b, a))]", [3, 3]),
        ("nvml.nvmlDeviceGetTopologyCommonAncestor(b, a)", 30),
        ("nvml.nvmlDeviceGetHandleByUUID('GPU-c0')", "Not Found"),
    ],
)
def test_what_is_told_is_answered(ask, expression, answer):
    """Every value that a line gives comes through the binding, and what no line gives is not supported."""
    assert ask(TWO, expression) == [answer]


def test_what_holds_changes_with_the_questions_and_with_time(ask):
    """A GPU that is lost at its third sample, another that heats up, and an answer that fails for all."""
    changing = TWO + (
        "temperature 50\nafter 1 Temperature\ntemperature 90\nafter 0.2 seconds\ntemperature 70\n"
        "answer PowerUsage 999\nafter 2 UtilizationRates\nanswer * 15\n"
    )
    temperature = "nvml.nvmlDeviceGetTemperature(b, 0)"
    busy = "nvml.nvmlDeviceGetUtilizationRates(b).gpu"
    said = ask(
        changing, temperature, temperature, "time.sleep(0.25)", temperature, "nvml.nvmlDeviceGetPowerUsage(b)",
        busy, busy, busy, temperature, "nvml.nvmlDeviceGetTemperature(a, 0)",
    )  # fmt: skip
    assert said[:5] == [50, 90, None, 70, "Unknown Error"]
    assert said[5:] == ["Not Supported", "Not Supported", "GPU is lost", "GPU is lost", 61]
    assert ask(f"after 3 questions\nanswer Temperature 999\n{TWO}", *["nvml.nvmlDeviceGetTemperature(a, 0)"] * 2) == [
        61,
        "Unknown Error",
    ]


def test_a_line_that_cannot_be_read_ends_the_process(ask):
    """A test with a misspelt description must not pass."""
    assert "nvml_stub: cannot read: utilisation 97 40" in ask(TWO + "utilisation 97 40\n")
