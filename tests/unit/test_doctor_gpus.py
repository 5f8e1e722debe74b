"""The doctor on the GPUs themselves: what the stub of NVML tells of them, and what of them is visible."""

import dataclasses
import os
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainbox.devices import Gpu, Inventory, MigInstance, Surroundings, describe
from trainbox.doctor import CHECKS, Case

PROGRAM = """
import pickle, sys
from trainbox.devices import take_inventory
from trainbox.devices.health import examine_health
sys.stdout.buffer.write(pickle.dumps((take_inventory(), examine_health())))
"""
U0, U1 = (f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "ab")
HEAD = "driver 580.65.06\n"
FIRST = f"gpu 0:3b.0 0 -1 85899345920 9.0 {U0} NVIDIA H100\n"
SECOND = f"gpu 0:af.0 0 -1 85899345920 9.0 {U1} NVIDIA H100\n"


@pytest.fixture
def described(nvml):
    """The case of a new process that finds the GPUs of a description."""

    def case(text, environ=None, **more):
        variables = {**os.environ, **nvml(HEAD + text)}
        child = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, check=True)
        inventory, (health, barriers) = pickle.loads(child.stdout)
        return built(inventory, environ, health=health, barriers=barriers, **more)

    return case


def built(inventory, environ=None, *, container=None, **more):
    around = Surroundings(container=container)
    environ = environ or {}
    listing = describe(inventory, environ=environ, around=around)
    return Case(inventory=inventory, listing=listing, around=around, environ=environ, **more)


def found(check, case):
    """The severity and message of each finding."""
    return [(one.severity, one.message) for one in CHECKS[check](case)]


@pytest.mark.parametrize(
    ("fault", "severity", "message"),
    [
        ("ecc 1 7 0\nretired 3 0 0\nremapped 2 0 0 0\nthrottle 0x5", "ok", "no fault is known of any GPU"),
        ("", "ok", "no fault is known of any GPU"),
        (
            "ecc 1 0 12",
            "failure",
            "GPU 0: 12 memory errors that ECC could not correct: results may be wrong",
        ),
        ("retired 0 1 1", "warning", "GPU 0: parts of its memory wait for a reset to be replaced"),
        ("remapped 0 1 1 0", "warning", "GPU 0: parts of its memory wait for a reset to be replaced"),
        ("remapped 0 9 0 1", "failure", "GPU 0: a row of its memory is broken and could not be replaced"),
        (
            "throttle 0x48\ntemperature 91",
            "warning",
            "GPU 0 runs slower than it could, 91 °C: hardware slowdown, too hot, slowed by the hardware",
        ),
        ("throttle 0x80", "warning", "GPU 0 runs slower than it could: power brake of the power supply"),
    ],
)
def test_a_fault_that_the_driver_knows_of(described, fault, severity, message):
    """Memory, heat and power; what a healthy GPU tells is none, and one that tells nothing either."""
    assert found("GPU faults", described(f"{FIRST}{fault}\n")) == [(severity, message)]


def test_a_gpu_that_does_not_open(described):
    """A failure, unless it is hidden and another one is used."""
    text = f"{FIRST}gpu 0:af.0 15 -1 0 9.0 {U1} NVIDIA H100\n"
    message = "GPU 1 cannot be used: GPU is lost"
    assert found("GPU faults", described(text)) == [("failure", message)]
    assert found("GPU faults", described(text, {"CUDA_VISIBLE_DEVICES": "0"})) == [("note", message)]


def test_faults_of_a_hidden_gpu_are_left_alone(described):
    """Somebody else has it."""
    case = described(f"{FIRST}{SECOND}ecc 1 0 12\n", {"CUDA_VISIBLE_DEVICES": "0"})
    assert found("GPU faults", case) == [("ok", "no fault is known of any GPU")]


def test_other_processes_on_a_gpu(described):
    """With their memory, where the driver tells it; a GPU for one process lets no second one in."""
    busy = f"{FIRST}process 4711 32212254720\nprocess 4712 1073741824\n"
    told = "GPU 0 is in use by process 4711 with 30.0 GiB, 4712 with 1.0 GiB"
    assert found("other processes", described(busy)) == [("warning", f"{told}: memory and speed are shared")]
    assert found("other processes", described(f"{busy}compute_mode 3\n")) == [
        ("failure", f"{told}, and lets no second one in (compute mode exclusive)")
    ]
    assert found("other processes", described(f"{FIRST}compute_mode 3\n")) == [
        ("ok", "nobody else computes on the GPUs")
    ]
    assert found("other processes", described(f"{FIRST}compute_mode 2\n")) == [
        ("failure", "GPU 0 is closed to all programs")
    ]
    assert [one[0] for one in found("other processes", described(busy, {"CUDA_VISIBLE_DEVICES": ""}))] == ["ok"]


def test_two_gpus_without_a_path_between_them(described, tmp_path):
    """A note with the advice for a hang; nothing where NVML sees a path, or NCCL is told already."""
    text = f"{FIRST}p2p 1 3\n{SECOND}"
    case = described(text, root=tmp_path)
    assert found("peer access", case) == [
        (
            "note",
            "no direct path between GPUs 0-1 (the bridges between them do not support it): NCCL goes through the "
            "host's memory, which is slower",
        )
    ]
    assert CHECKS["peer access"](case)[0].remedy == "if the first step hangs: NCCL_P2P_DISABLE=1 trainbox train …"
    assert found("peer access", described(FIRST + SECOND, root=tmp_path)) == [
        ("ok", "no obstacle between the GPUs is known")
    ]
    assert [one[0] for one in found("peer access", described(text, {"NCCL_P2P_DISABLE": "1"}))] == ["ok"]
    assert found("peer access", described(FIRST)) == [("ok", "fewer than two GPUs")]


TWO = Inventory(
    gpus=tuple(Gpu(index=n, uuid=u, name="NVIDIA A100", pci_address=f"0000:0{n}:00.0") for n, u in enumerate((U0, U1))),
    driver="580.65.06",
)
ONE = dataclasses.replace(TWO, gpus=TWO.gpus[:1])


@pytest.mark.parametrize(
    ("files", "how"),
    [
        ({"proc/cmdline": "BOOT_IMAGE=/vmlinuz intel_iommu=on quiet\n"}, "intel_iommu=on"),
        ({"sys/class/iommu/dmar0": ""}, "/sys/class/iommu has dmar0"),
        ({"sys/class/iommu/dmar0": "", "proc/cmdline": "intel_iommu=on iommu=pt\n"}, None),
        ({"proc/cmdline": "quiet\n"}, None),
    ],
)
def test_an_iommu_between_gpus(tmp_path, files, how):
    """On, it may break direct transfers; passing through, it does not."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    told = found("peer access", built(TWO, root=tmp_path))
    message = f"the IOMMU is on ({how}): direct transfers between GPUs may hang or be wrong"
    assert told == [("note", message) if how else ("ok", "no obstacle between the GPUs is known")]


@pytest.mark.parametrize(
    ("container", "remedy"),
    [
        ("docker", "docker run --shm-size=1g … or --ipc=host; compose: shm_size: 1g"),
        ("kubernetes", "mount an emptyDir with medium: Memory at /dev/shm"),
        (None, "sudo mount -o remount,size=1G /dev/shm"),
    ],
)
def test_shared_memory_is_large_enough_for_several_gpus(container, remedy):
    """Docker's 64 MiB are not, 1 GiB is; a single GPU needs none."""
    small, large = (built(TWO, container=container, shared_memory_bytes=n) for n in (64 * 2**20, 2**30))
    assert found("shared memory", small) == [
        ("warning", "/dev/shm has 64 MiB: with 2 GPUs NCCL may fail or hang for want of it")
    ]
    assert CHECKS["shared memory"](small)[0].remedy == remedy
    assert found("shared memory", large) == [("ok", "/dev/shm has 1.0 GiB")]
    assert [one[0] for one in found("shared memory", built(ONE, shared_memory_bytes=64 * 2**20))] == ["ok"]
    assert found("shared memory", built(TWO)) == [
        ("warning", "/dev/shm cannot be looked at: with 2 GPUs NCCL may fail or hang for want of it")
    ]


NO_MORE = "is out of range: numbers here are 0 and no other (a container's restart at 0: use UUIDs, or unset it)"
QUOTES = "holds quote characters, which docker's --env-file keeps: write the value without them"
RETURN = "it holds a carriage return, as files with Windows line ends have"


@pytest.mark.parametrize(
    ("inventory", "value", "expected", "remedy"),
    [
        (TWO, None, ("ok", "2 GPUs present, 2 visible; this process may use 2"), ""),
        (TWO, "0,1", ("ok", "2 GPUs present, 2 visible; this process may use 2"), ""),
        (TWO, " 0, 1", ("ok", "2 GPUs present, 2 visible; this process may use 2"), ""),
        (TWO, "1", ("note", "2 GPUs present, 1 visible: CUDA_VISIBLE_DEVICES='1'"), ""),
        (
            ONE,
            "1",
            ("failure", f"1 GPU present, 0 visible: CUDA_VISIBLE_DEVICES='1': its entry '1' {NO_MORE}"),
            "unset CUDA_VISIBLE_DEVICES (indices restart at 0 in a container), or name UUIDs: trainbox devices",
        ),
        (
            TWO,
            '"0,1"',
            ("failure", f"2 GPUs present, 0 visible: CUDA_VISIBLE_DEVICES='\"0,1\"': its entry '\"0' {QUOTES}"),
            "export CUDA_VISIBLE_DEVICES=0,1 (in an env file: without quotes, and sed -i 's/\\r$//' FILE)",
        ),
        (
            TWO,
            "0,1\r",
            ("warning", f"CUDA_VISIBLE_DEVICES='0,1\\r': {RETURN}"),
            "export CUDA_VISIBLE_DEVICES=0,1 (in an env file: without quotes, and sed -i 's/\\r$//' FILE)",
        ),
        (
            TWO,
            "NoDevFiles",
            (
                "failure",
                "2 GPUs present, 0 visible: CUDA_VISIBLE_DEVICES='NoDevFiles': its entry 'NoDevFiles' is Slurm's word "
                "for a job without GPUs: ask for them with --gres=gpu:N or --gpus=N",
            ),
            "srun --gres=gpu:1 … or sbatch --gpus=1 …",
        ),
        (
            TWO,
            "",
            (
                "failure",
                "2 GPUs present, 0 visible: CUDA_VISIBLE_DEVICES='': it is set and empty, which is not the same as "
                "not set",
            ),
            "unset CUDA_VISIBLE_DEVICES, or take what trainbox devices lists",
        ),
        (
            TWO,
            "0,-1",
            (
                "warning",
                "2 GPUs present, 1 visible: CUDA_VISIBLE_DEVICES='0,-1': its entry '-1' is negative, which hides all "
                "that follow",
            ),
            "unset CUDA_VISIBLE_DEVICES, or take what trainbox devices lists",
        ),
    ],
)
def test_what_the_variable_leaves(inventory, value, expected, remedy):
    """None visible is a failure with its cause and the command that mends it."""
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    (finding,) = CHECKS["visible devices"](built(inventory, environ))
    assert ((finding.severity, finding.message), finding.remedy) == (expected, remedy)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"0,1"', ("warning", f"CUDA_VISIBLE_DEVICES='\"0,1\"': its entry '\"0' {QUOTES}")),
        ("0,1\r", ("warning", f"CUDA_VISIBLE_DEVICES='0,1\\r': {RETURN}")),
        ("NoDevFiles", ("warning", None)),
        ("0,1", ("ok", "no GPU is listed")),
        ("", ("ok", "no GPU is listed")),
        (None, ("ok", "no GPU is listed")),
    ],
)
def test_a_value_that_is_wrong_without_any_gpu(value, expected):
    """Quotes and line ends are, a number that nothing has is not: a login node has no GPU."""
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    (told,) = found("visible devices", built(Inventory(absence="no library"), environ))
    assert told[0] == expected[0]
    assert expected[1] is None or told[1] == expected[1]
    assert told[0] == "ok" or "CUDA_VISIBLE_DEVICES=" in told[1]


def test_slurm_gave_fewer_than_are_visible():
    """As with --containall or --cleanenv; the job's own value has to be passed on."""
    case = built(TWO, {"SLURM_JOB_GPUS": "3"}, container="apptainer")
    assert found("visible devices", case) == [
        (
            "warning",
            "Slurm gave 1 GPU and this process may use 2: pass on the job's CUDA_VISIBLE_DEVICES as "
            "APPTAINERENV_CUDA_VISIBLE_DEVICES",
        )
    ]
    assert CHECKS["visible devices"](case)[0].remedy == (
        'export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES" (before apptainer, in the job)'
    )
    bare = built(TWO, {"SLURM_JOB_GPUS": "3"})
    assert CHECKS["visible devices"](bare)[0].remedy == "export CUDA_VISIBLE_DEVICES=… (as the job has it)"


def test_gpus_that_may_not_be_opened_and_an_order_that_only_cuda_knows():
    """Notes: neither keeps the others from being used."""
    closed = dataclasses.replace(ONE, closed=3)
    assert found("visible devices", built(closed)) == [
        ("note", "3 GPUs of this machine may not be opened by this process")
    ]
    environ = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert found("visible devices", built(TWO, environ)) == [
        ("note", "CUDA_DEVICE_ORDER is not PCI_BUS_ID: only CUDA knows which GPU a number means")
    ]


SLICES = tuple(MigInstance(uuid=f"MIG-{n}", gpu_instance=n, compute_instance=0, name="1g.10gb") for n in (1, 2))


def test_mig_without_an_instance():
    """A failure if it is the only GPU, a warning beside another one; with an instance all is well."""
    bare, one = (dataclasses.replace(TWO.gpus[1], mig=mig) for mig in ((), SLICES[:1]))
    message = "in MIG mode without a MIG instance: nothing can be computed there"
    alone = built(Inventory(gpus=(dataclasses.replace(bare, index=0),)))
    assert found("MIG", alone) == [("failure", f"GPU 0 {message}")]
    assert CHECKS["MIG"](alone)[0].remedy == (
        "sudo nvidia-smi mig -i 0 -cgi 0 -C makes one of the whole GPU; sudo nvidia-smi -i 0 -mig 0 ends the mode"
    )
    assert found("MIG", built(Inventory(gpus=(TWO.gpus[0], bare)))) == [("warning", f"GPU 1 {message}")]
    assert found("MIG", built(Inventory(gpus=(TWO.gpus[0], one)))) == [("ok", "every GPU in MIG mode has an instance")]
    assert found("MIG", built(TWO)) == [("ok", "no GPU is in MIG mode")]


@given(st.text(alphabet="0123,-GPUMIabcd\"' \r\nNoDevFiles", max_size=20))
@settings(max_examples=60, deadline=None)
def test_no_value_makes_a_check_fail(value):
    """Whatever the variable holds, each of the checks that read it answers."""
    for inventory in (TWO, Inventory(absence="no library"), Inventory(gpus=(TWO.gpus[0],), closed=1)):
        case = built(inventory, {"CUDA_VISIBLE_DEVICES": value})
        assert all(CHECKS[name](case) for name in ("visible devices", "MIG", "GPU faults", "other processes"))


def test_several_mig_instances_for_one_process():
    """It uses the first; another process can have the second."""
    cut = Inventory(gpus=(dataclasses.replace(TWO.gpus[0], mig=SLICES),))
    assert found("MIG", built(cut)) == [("note", "2 MIG instances: one process can use one, and uses MIG-1")]
    assert [one[0] for one in found("visible devices", built(cut))] == ["ok"]
    case = built(cut, {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"})
    assert found("MIG", case) == [
        ("warning", "2 MIG instances in CUDA_VISIBLE_DEVICES: one process can use one, and uses MIG-1")
    ]
    assert CHECKS["MIG"](case)[0].remedy == (
        "start a process for each: CUDA_VISIBLE_DEVICES=MIG-2 trainbox train --run SECOND"
    )
    assert found("MIG", built(cut, {"CUDA_VISIBLE_DEVICES": "MIG-2"})) == [
        ("ok", "every GPU in MIG mode has an instance")
    ]
