"""Discovery through the real NVML binding, on a stub of the driver's library that tells what a file describes."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import dataclasses, json, sys
from trainbox.devices import discover
from trainbox.errors import TrainboxError
try:
    print(json.dumps([dataclasses.asdict(gpu) for gpu in discover()]))
except TrainboxError as error:
    print(json.dumps([error.exit_code, str(error)]))
assert "tensorflow" not in sys.modules
"""

TWO = """driver 570.86.10
gpu 0:af.0 0 -1 85899345920 9.0 GPU-b0000000-0000-0000-0000-000000000001 NVIDIA H100 80GB HBM3
gpu 0:3b.0 0 0 0 12.1 GPU-a0000000-0000-0000-0000-000000000000 NVIDIA GB10
"""


def discovered(environ):
    """What a new process finds with these variables."""
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **environ}, capture_output=True, text=True, check=True
    )
    return json.loads(program.stdout)


@pytest.fixture
def described(nvml):
    """What a new process finds where there are the GPUs of a description."""
    return lambda text: discovered(nvml(text))


def test_no_driver_means_no_gpus(tmp_path):
    """A machine without NVIDIA's library has no GPUs, and that is no error."""
    assert discovered({"LD_LIBRARY_PATH": str(tmp_path)}) == []


def test_gpus_come_in_the_order_of_their_pci_addresses_with_all_that_nvml_knows(described):
    """NVML's own order does not count, and a GPU without memory of its own is described without it."""
    first, second = described(TWO)
    assert first == {
        "index": 0,
        "uuid": "GPU-a0000000-0000-0000-0000-000000000000",
        "name": "NVIDIA GB10",
        "pci_address": "0000:3b:00.0",
        "memory_bytes": None,
        "compute_capability": [12, 1],
        "driver": "570.86.10",
        "mig": None,
        "fault": "",
    }
    assert (second["index"], second["name"], second["memory_bytes"]) == (1, "NVIDIA H100 80GB HBM3", 85899345920)


def test_mig_instances_belong_to_their_gpu(described):
    """A GPU in MIG mode lists its slices; with none it has an empty list, which is not the same as no MIG mode."""
    text = """gpu 0:1.0 0 1 85899345920 9.0 GPU-a0 NVIDIA H100
mig 1 0 42949672960 MIG-a1 NVIDIA H100 MIG 3g.40gb
mig 2 0 42949672960 MIG-a2 NVIDIA H100 MIG 3g.40gb
gpu 0:2.0 0 1 85899345920 9.0 GPU-b0 NVIDIA H100
"""
    divided, undivided = described(text)
    assert divided["mig"][1] == {
        "uuid": "MIG-a2",
        "gpu_instance": 2,
        "compute_instance": 0,
        "name": "NVIDIA H100 MIG 3g.40gb",
        "memory_bytes": 42949672960,
    }
    assert len(divided["mig"]) == 2
    assert undivided["mig"] == []


def test_a_gpu_that_may_not_be_opened_is_left_out_and_not_counted(described):
    """A scheduler's cgroup hides a card from CUDA too, so the next one takes its number."""
    (gpu,) = described(TWO.replace("gpu 0:3b.0 0", "gpu 0:3b.0 4"))
    assert (gpu["index"], gpu["name"]) == (0, "NVIDIA H100 80GB HBM3")


def test_a_lost_gpu_is_listed_with_its_fault(described):
    """A card that fell off the bus is told, never dropped in silence."""
    gpus = described(TWO.replace("gpu 0:3b.0 0", "gpu 0:3b.0 15"))
    assert [(gpu["index"], gpu["uuid"][:6], gpu["fault"]) for gpu in gpus] == [
        (0, "GPU-b0", ""),
        (1, "", "GPU is lost"),
    ]


def test_a_driver_that_is_not_loaded_means_no_gpus(described):
    """Login nodes have the library without the kernel module."""
    assert described("init 9\n") == []


def test_a_driver_that_does_not_answer_is_an_error_of_devices(described):
    """After an upgrade without a reboot the library and the kernel module differ: never a silent CPU run."""
    assert described("init 18\n" + TWO) == [
        3,
        "the NVIDIA driver of this machine does not answer (NVML does not start: RM has detected an NVML/RM version "
        "mismatch.); nvidia-smi should say the same: reload the driver or reboot, or train with --device cpu",
    ]
