"""GPUs that a file describes, in real processes: what is listed of them, and runs that cannot use them."""

import json
import shutil
import subprocess
import sys

import pytest

from trainbox import gpu_libraries
from trainbox.values import shown

EIGHT = "driver 570.86.10\n" + "".join(
    f"gpu 0:{number}b.0 0 -1 85899345920 9.0 GPU-{number}0000000-0000-0000-0000-000000000000 NVIDIA H100\n"
    for number in range(8)
)
WITHOUT_CUDA = (
    "tensorflow-cpu 2.21.0 is built without CUDA; install trainbox with its extra gpu into an environment of its own, "
    "or take the GPU image"
)


def listed(place, variables, *words, **environ):
    """What `trainbox devices --json` writes."""
    command = place.trainbox("devices", "--json", *words, fresh=True, **variables, **environ)
    assert command.wait() == 0, command.err
    return json.loads(command.out)


def test_the_machine_is_listed_as_json_alone_without_tensorflow(place, nvml):
    """Eight GPUs of which the environment leaves two; nothing else on either stream."""
    variables = nvml(EIGHT)
    data = listed(place, variables, CUDA_VISIBLE_DEVICES="5,2", TF_CPP_MIN_LOG_LEVEL="3")
    assert [(gpu["machine_index"], gpu["index"]) for gpu in data["gpus"] if gpu["usable"]] == [(2, 1), (5, 0)]
    assert data["gpus"][2] == {
        "index": 1,
        "machine_index": 2,
        "name": "NVIDIA H100",
        "uuid": "GPU-20000000-0000-0000-0000-000000000000",
        "pci_address": "0000:2b:00.0",
        "memory_bytes": 85899345920,
        "compute_capability": "9.0",
        "driver": "570.86.10",
        "usable": True,
        "reason": "",
        "mig": None,
    }
    assert data["gpus"][0]["reason"] == "not named in CUDA_VISIBLE_DEVICES='5,2'"
    assert place.started[-1].err == ""


def test_what_dotenv_hides_is_hidden(place, nvml):
    """`train` would read it too."""
    (place.folder / ".env").write_text('CUDA_VISIBLE_DEVICES="1"\n')
    try:
        data = listed(place, nvml(EIGHT))
    finally:
        (place.folder / ".env").unlink()
    assert [gpu["machine_index"] for gpu in data["gpus"] if gpu["usable"]] == [1]


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("init 9\n", "driver not loaded"),
        ("init 18\n", "the NVIDIA driver does not answer (NVML does not start: RM has detected an NVML/RM version"),
        ("answer Count 999\n", "the NVIDIA driver does not answer (NVML does not list the GPUs: Unknown Error)"),
        ("", "the NVIDIA driver is loaded and lists no GPU"),
    ],
)
def test_no_gpu_is_no_error_of_a_list(place, nvml, description, reason):
    """The reason is told, and the command ends with 0."""
    command = place.trainbox("devices", fresh=True, **nvml(description))
    assert (command.wait(), command.err) == (0, "")
    assert command.out.startswith("no GPU: ")
    assert reason in command.out


def test_an_empty_library_of_the_driver_is_told_from_none(place, tmp_path):
    """As a container has it whose driver was mounted as an empty file."""
    (tmp_path / "libnvidia-ml.so.1").touch()
    broken = listed(place, {"LD_LIBRARY_PATH": str(tmp_path)})["absence"]
    assert broken == (
        f"the NVIDIA driver's libnvidia-ml.so.1 does not load ({tmp_path}/libnvidia-ml.so.1: file too short): install "
        "the driver again"
    )
    (tmp_path / "libnvidia-ml.so.1").unlink()
    assert "libnvidia-ml.so.1 was not found" in listed(place, {"LD_LIBRARY_PATH": str(tmp_path)})["absence"]


def test_tensorflows_own_list_is_set_beside_it(place, nvml):
    """Where they part is told, and why; standard output stays JSON alone."""
    data = listed(place, nvml(EIGHT), "--tensorflow")["tensorflow"]
    assert data == {
        "gpus": [],
        "built_for_gpus": False,
        "libraries": [],
        "difference": f"this process may use 8 GPUs and TensorFlow lists 0: {WITHOUT_CUDA}",
    }
    assert not (place.folder / "data").exists()


def test_a_run_ends_at_once_if_tensorflow_can_use_none_of_the_gpus(place, nvml):
    """Exit 3 naming the reason, before TensorFlow is loaded; never a silent run on the CPU."""
    run = place.trainbox("train", "--run", "eight", fresh=True, TRAINBOX_DEVICE="auto", **nvml(EIGHT))
    assert run.wait() == 3
    assert run.complaint == (
        f"TensorFlow cannot use any of the 8 selected GPUs: {WITHOUT_CUDA}; --device cpu trains on the CPU"
    )
    assert "devices: training on 8 GPUs: NVIDIA H100 (GPU-00000000), " in run.out


def test_fewer_gpus_than_asked_shows_the_table(place, nvml):
    """Exit 3 with one line on standard error, and the whole machine above it."""
    words = ["train", "--gpus", "2", "--run", "fewer"]
    run = place.trainbox(*words, fresh=True, TRAINBOX_DEVICE="auto", CUDA_VISIBLE_DEVICES="6", **nvml(EIGHT))
    assert run.wait() == 3
    assert run.complaint == (
        "--gpus 2: this process sees 1 of 8 GPUs: 0 NVIDIA H100 (GPU-60000000) (CUDA_VISIBLE_DEVICES='6')"
    )
    table = run.out.splitlines()[1:]
    assert table[0] == "8 GPUs, driver 570.86.10; this process may use 1"
    assert [line.split()[:2] for line in table[2:]] == [["0" if n == 6 else "-", str(n)] for n in range(8)]


def test_a_run_is_warned_of_gpus_that_slurm_did_not_give(place, nvml):
    """The job's list was lost on the way into a container."""
    words = ["train", "--run", "slurm"]
    run = place.trainbox(*words, fresh=True, TRAINBOX_DEVICE="auto", SLURM_JOB_GPUS="2,3", **nvml(EIGHT))
    assert run.wait() == 3
    assert "warning: Slurm gave 2 GPUs and this process may use 8: pass on the job's CUDA_VISIBLE_DEVICES" in run.out


def test_a_run_on_the_cpu_says_why_there_is_no_gpu(place, nvml, tmp_path):
    """In a container that was not handed any, on a node without the driver, in a job without a GPU of its own."""
    words = ["train", "--model", "mlp", "--epochs", "1", "--run"]
    contained = {"LD_LIBRARY_PATH": str(tmp_path), "APPTAINER_CONTAINER": "/x.sif"}
    closed = nvml(EIGHT.replace(".0 0 -1", ".0 4 -1"))
    not_loaded = (
        "libnvidia-ml.so.1 is here and the driver not loaded: this is a login node, or load it (modprobe nvidia)"
    )
    for name, environ, why in [
        (
            "contained",
            contained,
            "no NVIDIA driver in this container (libnvidia-ml.so.1 was not found): start it with --nv",
        ),
        ("closed", closed, "this machine has 8 GPUs that this process has no permission to open"),
        ("unloaded", nvml("init 9\n"), not_loaded),
    ]:
        run = place.start(*words, name, fresh=True, TRAINBOX_DEVICE="auto", **environ)
        said = f"devices: no GPU on this machine: training on the CPU\nnote: {why}\n"
        run.until(lambda run=run, said=said: said in run.out)
        run.process.kill()


@pytest.fixture
def wheels(tmp_path):
    """A TensorFlow for GPUs that must not be loaded, its libraries (three missing, one broken) and the driver's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for libraries to load")
    site = tmp_path / "site"
    (tmp_path / "driver").mkdir()
    libraries = {name: site / "nvidia" / name / "lib" / soname for name, soname in gpu_libraries.SONAMES.items()}
    for name, library in [*libraries.items(), ("cuda", tmp_path / "driver" / gpu_libraries.DRIVER)]:
        library.parent.mkdir(parents=True, exist_ok=True)
        words = [compiler, "-shared", "-nostdlib", f"-Wl,-soname,{library.name}", "-xc", "-o", str(library), "-"]
        subprocess.run(words, input=f"int {name};", text=True, check=True)
    for missing in ("cufft/lib/libcufft.so.11", "nccl/lib/libnccl.so.2", "cupti/lib/libcupti.so.12"):
        (site / "nvidia" / missing).unlink()
    (site / "nvidia/cudnn/lib/libcudnn.so.9").write_bytes(b"\x7fELF")
    (site / "tensorflow").mkdir()
    (site / "tensorflow/__init__.py").write_text("raise SystemExit('TensorFlow was loaded')\n")
    return site


@pytest.mark.parametrize(("gpus", "missing"), [("2", "libcufft.so.11, libnccl.so.2"), ("1", "libcufft.so.11")])
def test_every_library_that_tensorflow_could_not_load_is_named(place, nvml, wheels, gpus, missing):
    """With its path and the linker's reason, before TensorFlow is loaded; NCCL counts from two GPUs on."""
    variables = nvml(EIGHT) | {"PYTHONPATH": str(wheels)}
    variables["LD_LIBRARY_PATH"] += f":{wheels.parent}/driver"
    words = ["train", "--gpus", gpus, "--run", f"libraries-{gpus}"]
    run = place.trainbox(*words, fresh=True, TRAINBOX_DEVICE="auto", **variables)
    assert run.wait() == 3
    broken = wheels / "nvidia/cudnn/lib/libcudnn.so.9"
    selected = "any of the 2 selected GPUs" if gpus == "2" else "the selected GPU"
    assert run.complaint == (
        f"TensorFlow cannot use {selected}: not found: {missing}; libcudnn.so.9 does not load: {broken}: file too "
        f"short; LD_LIBRARY_PATH is {shown(variables['LD_LIBRARY_PATH'])}; --device cpu trains on the CPU"
    )


def test_a_driver_without_its_library_for_computing_is_named(place, nvml, wheels):
    """nvidia-smi works in such a container, and nothing else does."""
    variables = nvml(EIGHT) | {"PYTHONPATH": str(wheels)}
    run = place.trainbox("train", "--gpus", "1", "--run", "utility", fresh=True, TRAINBOX_DEVICE="auto", **variables)
    assert run.wait() == 3
    assert "not found: libcuda.so.1, libcufft.so.11; " in run.complaint
    assert (
        "; libcuda.so.1 is the driver's, which a container gets with NVIDIA_DRIVER_CAPABILITIES=compute,utility; "
    ) in run.complaint


CONFIGURE = """
from trainbox import runtime
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError
try:
    runtime.configure(RunConfig(), Selection(kind="gpu", replicas=8, visible_devices="", names=(), notice=""))
except DevicesError as error:
    print(error)
"""


def test_tensorflow_is_compared_with_the_selection_when_it_is_loaded():
    """A GPU that it leaves out although its libraries load is no reason to go on without it."""
    child = subprocess.run([sys.executable, "-c", CONFIGURE], capture_output=True, text=True, check=True)
    assert child.stdout == (
        f"TensorFlow can use 0 of the 8 selected GPUs: {WITHOUT_CUDA}; --device cpu trains on the CPU\n"
    )


EVERY_ROOM = """
import importlib, pkgutil
import trainbox
for module in pkgutil.walk_packages(trainbox.__path__, "trainbox."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from trainbox import runtime, strategy
from trainbox.config import RunConfig
from trainbox.devices import select
config = RunConfig(device="cpu", logical_devices=4)
selection = select(config, gpus=[], environ={})
runtime.configure(config, selection)
print(strategy.build(config, selection).num_replicas_in_sync)
"""


def test_no_import_sets_tensorflow_up():
    """With every room loaded its devices can still be configured, which they cannot once anything has touched it."""
    child = subprocess.run([sys.executable, "-c", EVERY_ROOM], capture_output=True, text=True, check=True)
    assert child.stdout == "4\n"
