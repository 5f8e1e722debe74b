"""The doctor on the driver: there, new enough, a library that is real, and what cuInit answers."""

import shutil
import subprocess

import pytest

from trainbox.devices import Gpu, Inventory, Surroundings, describe
from trainbox.doctor import CHECKS, Case, probe

CUDA_12_9 = {"nvidia-cuda-runtime-cu12": "12.9.79"}
LIBCUDA = """
#include <stdlib.h>
#include <unistd.h>
int cuInit(unsigned flags) {
    const char *word = getenv("ANSWER");
    if (word && *word == 'h') sleep(60);
    if (word && *word == 'c') abort();
    return word ? atoi(word) : 0;
}
"""


def found(check, case):
    """The severity and message of each finding."""
    return [(one.severity, one.message) for one in CHECKS[check](case)]


def machine(tmp_path, inventory, *, files=(), container=None, environ=None, **more):
    """A case in which `files` (name -> text) lie below the root."""
    for name, text in dict(files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    around = Surroundings(container=container)
    listing = describe(inventory, environ=environ or {}, around=around)
    return Case(root=tmp_path, inventory=inventory, listing=listing, around=around, environ=environ or {}, **more)


def gpus(driver="580.65.06"):
    gpu = Gpu(index=0, uuid="GPU-a", name="NVIDIA H100", driver=driver, compute_capability=(9, 0))
    return Inventory(gpus=(gpu,), driver=driver)


HARDWARE = {
    "sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
    "sys/bus/pci/devices/0000:3b:00.1/vendor": "0x10de\n",
    "sys/bus/pci/devices/0000:3b:00.1/class": "0x040300\n",
}
NONE = Inventory(absence="no library")


def test_no_driver_matters_where_the_machine_has_a_gpu(tmp_path):
    """Its sound function is no GPU; on a machine without one, and in a run for the CPU, all is well."""
    words = "no NVIDIA driver is installed (libnvidia-ml.so.1 was not found)"
    assert found("driver", machine(tmp_path, NONE)) == [("ok", words)]
    case = machine(tmp_path, NONE, files=HARDWARE)
    assert found("driver", case) == [("failure", f"{words}; the machine has 1 NVIDIA GPU (0000:3b:00.0)")]
    assert "apt install nvidia-driver" in CHECKS["driver"](case)[0].remedy
    assert found("driver", machine(tmp_path, NONE, built_for_gpus=False)) == [("note", words)]


@pytest.mark.parametrize(
    ("container", "remedy"),
    [("docker", "docker run --gpus all …"), ("apptainer", "apptainer exec --nv …"), (None, "install the driver")],
)
def test_gpus_that_are_asked_for_need_a_driver(tmp_path, container, remedy):
    """With --device gpu a machine without a driver is a failure anywhere."""
    case = machine(tmp_path, NONE, container=container, device="gpu")
    assert [one.severity for one in CHECKS["driver"](case)] == ["failure"]
    assert CHECKS["driver"](case)[0].remedy.startswith(remedy)


def test_a_driver_that_does_not_answer(tmp_path):
    """Whatever is asked for."""
    inventory = Inventory(absence="driver does not answer", detail="NVML does not start: Unknown Error")
    assert found("driver", machine(tmp_path, inventory)) == [
        (
            "failure",
            "the NVIDIA driver does not answer (NVML does not start: Unknown Error): nvidia-smi should say so too; "
            "reload or reboot",
        )
    ]


def test_a_driver_that_is_not_loaded(tmp_path):
    """A login node has the library and no GPU; a GPU node has lost its module."""
    inventory = Inventory(absence="driver not loaded", detail="Driver Not Loaded")
    assert [severity for severity, _ in found("driver", machine(tmp_path, inventory))] == ["ok"]
    case = machine(tmp_path, inventory, files=HARDWARE)
    assert [(one.severity, one.remedy) for one in CHECKS["driver"](case)] == [
        ("failure", "sudo modprobe nvidia; on a cluster, ask for a GPU node: srun --gpus=1 …")
    ]


@pytest.mark.parametrize(
    ("driver", "severity", "message"),
    [
        ("580.65.06", "ok", "driver 580.65.06"),
        ("575.51.03", "ok", "driver 575.51.03"),
        (
            "550.54.15",
            "note",
            "driver 550.54.15 is older than the 575.51.03 that came with CUDA 12.9: it runs what is compiled for its "
            "GPUs, and may refuse what newer GPUs would have to compile",
        ),
        ("525.60.13", "note", None),
        ("525.60.11", "failure", "driver 525.60.11 is too old for CUDA 12.9, which needs 525.60.13 or newer"),
        ("470.256.02", "failure", "driver 470.256.02 is too old for CUDA 12.9, which needs 525.60.13 or newer"),
    ],
)
def test_the_driver_is_new_enough_for_the_wheels(tmp_path, driver, severity, message):
    """By the table, compared as numbers and not as text."""
    told = found("driver", machine(tmp_path, gpus(driver), packages=CUDA_12_9))
    assert [one[0] for one in told] == [severity]
    assert message is None or told[0][1] == message


def test_a_driver_that_was_updated_and_not_loaded(tmp_path):
    """The kernel's version is not the library's until the reboot."""
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Wed Apr 17 15:45:42 UTC 2025\n"
    name = "proc/driver/nvidia/version"
    case = machine(tmp_path, gpus(), files={name: version.format("570.86.10")})
    assert found("driver", case) == [
        ("failure", "the kernel runs driver 570.86.10 and the library here is of 580.65.06")
    ]
    case = machine(tmp_path, gpus(), files={name: version.format("580.65.06")})
    assert found("driver", case) == [("ok", "driver 580.65.06")]


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory):
    """A libcuda.so.1 whose cuInit answers what ANSWER says."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for a libcuda")
    path = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-xc", "-o", path, "-"], input=LIBCUDA, text=True, check=True)
    return path


def tried(tmp_path, folder, *, seconds=60.0, container=None, **environ):
    """A case with a GPU whose libcuda is looked for in `folder`, really loaded by a process."""
    cuda = probe({"LD_LIBRARY_PATH": str(folder), **environ}, seconds=seconds)
    return machine(tmp_path, gpus(), container=container, cuda=lambda: cuda)


def test_a_real_library_loads_and_answers(tmp_path, libcuda):
    """Whatever CUDA_VISIBLE_DEVICES hides, which is looked at elsewhere."""
    case = tried(tmp_path, libcuda.parent)
    assert found("libcuda", case) == [("ok", f"{libcuda} loads")]
    assert found("cuInit", case) == [("ok", "cuInit succeeds")]


def test_nothing_is_loaded_where_no_gpu_is_listed(tmp_path):
    """A machine without GPUs has no libcuda."""
    case = machine(tmp_path, NONE, cuda=lambda: pytest.fail("was called"))
    assert [found(name, case)[0][0] for name in ("libcuda", "cuInit")] == ["ok", "ok"]


def test_an_empty_file_in_its_place(tmp_path):
    """As a container that was first started without GPUs leaves it; mended by the real one."""
    (tmp_path / "libcuda.so.1").touch()
    case = tried(tmp_path, tmp_path, container="docker")
    assert found("libcuda", case) == [
        (
            "failure",
            f"{tmp_path}/libcuda.so.1 is an empty or cut file, as a container that was first started without GPUs "
            "leaves it",
        )
    ]
    assert CHECKS["libcuda"](case)[0].remedy == (
        "remove it from the image or from the mount, and start the container with --gpus all -e "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    )
    assert found("cuInit", case) == [("ok", "not called: libcuda.so.1 does not load")]


def test_no_library_at_all(tmp_path):
    """The linker's own words, and what hands it in."""
    case = tried(tmp_path, tmp_path, container="apptainer")
    assert found("libcuda", case) == [
        (
            "failure",
            "libcuda.so.1 does not load: libcuda.so.1: cannot open shared object file: No such file or directory",
        )
    ]
    assert CHECKS["libcuda"](case)[0].remedy == "start the container with --nv"


def test_a_toolkits_stub_and_a_library_of_that_name_alone(tmp_path, libcuda):
    """The first is known by its folder, the second has no cuInit."""
    stubs = tmp_path / "lib64" / "stubs"
    stubs.mkdir(parents=True)
    shutil.copy(libcuda, stubs)
    assert found("libcuda", tried(tmp_path, stubs)) == [
        ("failure", f"{stubs}/libcuda.so.1 is the stub of a CUDA toolkit")
    ]
    subprocess.run(
        ["cc", "-shared", "-xc", "-o", tmp_path / "libcuda.so.1", "-"], input="int x;", text=True, check=True
    )
    assert found("libcuda", tried(tmp_path, tmp_path)) == [
        ("failure", f"{tmp_path}/libcuda.so.1 has no cuInit: it is not the driver's library")
    ]


@pytest.mark.parametrize(
    ("answer", "message", "remedy"),
    [
        ("100", "100 (CUDA_ERROR_NO_DEVICE): the driver finds no GPU that this process may open", "ls -l /dev/nvidia*"),
        (
            "803",
            "803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): libcuda.so.1 and the driver in the kernel are of",
            "cat /proc",
        ),
        ("804", "804 (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE): a libcuda.so.1 for forward", "take the folder"),
        ("999", "999 (CUDA_ERROR_UNKNOWN): the driver gives no reason", "sudo modprobe -r nvidia_uvm"),
        ("34", "34 (CUDA_ERROR_STUB_LIBRARY): this libcuda.so.1 is the stub", "take the folder"),
        ("802", "802 (CUDA_ERROR_SYSTEM_NOT_READY): the NVSwitches", "sudo systemctl start nvidia-fabricmanager"),
        ("719", "719", "nvidia-smi; then dmesg"),
    ],
)
def test_what_cuinit_answers_is_told_in_words(tmp_path, libcuda, answer, message, remedy):
    """Name, meaning and command from the table; a number that is not there is told as it is."""
    (finding,) = CHECKS["cuInit"](tried(tmp_path, libcuda.parent, ANSWER=answer))
    assert finding.severity == "failure"
    assert finding.message.startswith(f"cuInit answers {message}")
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("answer", "seconds", "message"),
    [("crash", 60.0, "cuInit died of SIGABRT"), ("hang", 0.5, "cuInit did not answer in 0.5 s")],
)
def test_a_cuinit_that_does_not_come_back(tmp_path, libcuda, answer, seconds, message):
    """Only its own process is lost."""
    case = tried(tmp_path, libcuda.parent, seconds=seconds, ANSWER=answer)
    assert found("cuInit", case) == [("failure", message)]
    assert found("libcuda", case) == [("ok", f"{libcuda} loads")]


def test_a_library_that_ends_its_process_while_it_is_loaded(tmp_path, libcuda):
    """Not the doctor's process."""
    code = "#include <stdlib.h>\n__attribute__((constructor)) static void begin(void) { abort(); }"
    words = ["cc", "-shared", "-fPIC", "-xc", "-o", tmp_path / "libcuda.so.1", "-"]
    subprocess.run(words, input=code, text=True, check=True)
    case = tried(tmp_path, tmp_path)
    assert found("libcuda", case) == [("failure", "libcuda.so.1 died of SIGABRT while it was loaded")]
    assert found("cuInit", case) == [("ok", "not called: libcuda.so.1 does not load")]
