"""What TensorFlow, Keras and TFDS find in their environment, in processes of their own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainbox import environment
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError

CPU = Selection(kind="cpu", replicas=1, visible_devices="", names=("CPU",), notice="training on the CPU")
GPU = Selection(kind="gpu", replicas=2, visible_devices="GPU-b,GPU-a", names=("A", "B"), notice="training on 2 GPUs")


def applied(selection=CPU, data_dir=Path("/nowhere/data"), **environ):
    environment.apply(RunConfig(data_dir=data_dir), selection, environ=environ)
    return environ


def run(program, environ=None, **options):
    """The last line of a fresh process's output, as JSON."""
    output = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True, **options
    ).stdout
    return json.loads(output.splitlines()[-1])


def test_the_cpu_hides_every_gpu():
    """On the CPU nothing may take a GPU's memory, whatever the environment allowed."""
    environ = applied(CUDA_VISIBLE_DEVICES="0,1")
    assert environ["CUDA_VISIBLE_DEVICES"] == ""
    assert environ["TF_CPP_MIN_LOG_LEVEL"] == "2"
    assert environ["TFDS_DATA_DIR"] == "/nowhere/data"


def test_gpus_are_those_of_the_selection_in_the_order_of_the_pci_bus(tmp_path):
    """CUDA sees the selected UUIDs only, numbers GPUs as nvidia-smi does, and keeps what it compiles on the volume."""
    environ = applied(GPU, data_dir=tmp_path / "data")
    assert environ["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environ["TF_CPP_MIN_LOG_LEVEL"] == "1"
    assert environ["CUDA_CACHE_PATH"] == str(tmp_path / "data" / "cuda-cache")
    assert environ["CUDA_CACHE_MAXSIZE"] == str(4 * 2**30)
    assert (tmp_path / "data" / "cuda-cache").is_dir()


def test_a_users_values_stay_where_no_result_hangs_on_them(tmp_path):
    """Log level, device order and compile cache are the user's; empty counts as not set."""
    given = {"TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "CUDA_CACHE_PATH": "/scratch/cuda"}
    assert given.items() <= applied(GPU, data_dir=tmp_path, **given).items()
    assert list(tmp_path.iterdir()) == []
    assert applied(TF_CPP_MIN_LOG_LEVEL="")["TF_CPP_MIN_LOG_LEVEL"] == "2"


def test_a_data_volume_that_cannot_be_written_keeps_cudas_own_cache():
    """A read-only volume costs time at the start, not the run."""
    assert "CUDA_CACHE_PATH" not in applied(GPU, data_dir=Path("/dev/null/data"))


def test_variables_that_change_what_keras_computes_are_taken_away():
    """An epoch limit or another Keras from the user's shell never reaches a run."""
    foreign = {"KERAS_MAX_EPOCHS": "1", "KERAS_MAX_STEPS_PER_EPOCH": "1", "TF_USE_LEGACY_KERAS": "1"}
    environ = applied(**foreign, KERAS_BACKEND="jax")
    assert environ["KERAS_BACKEND"] == "tensorflow"
    assert not foreign.keys() & environ.keys()


FRAMEWORKS = """
import json, os, pathlib, sys
from trainbox import environment, loading
from trainbox.config import RunConfig
from trainbox.devices import select
config = RunConfig(device="cpu")
environment.apply(config, select(config, gpus=[], environ=os.environ), environ=os.environ)
assert "tensorflow" not in sys.modules and "keras" not in sys.modules
loading.load_tensorflow()
import keras
print(json.dumps([
    keras.config.floatx(), keras.config.image_data_format(), keras.config.backend(), keras.config.epsilon(),
    keras.layers.Conv2D(1, 3).dtype_policy.name,
]))
"""


def test_the_users_keras_json_never_reaches_a_run(tmp_path):
    """Keras starts from its own defaults beside keras.json files of float16 and channels_first, and writes nothing."""
    planted = {"floatx": "float16", "image_data_format": "channels_first", "backend": "jax", "epsilon": 0.5}
    homes = [tmp_path / "home" / ".keras", tmp_path / "keras"]
    for home in homes:
        home.mkdir(parents=True)
        (home / "keras.json").write_text(json.dumps(planted))
    before = sorted(tmp_path.rglob("*"))
    environ = {
        **os.environ,
        "HOME": str(tmp_path / "home"),
        "KERAS_HOME": str(homes[1]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    assert run(FRAMEWORKS, environ, cwd=tmp_path) == ["float32", "channels_last", "tensorflow", 1e-7, "float32"]
    assert sorted(tmp_path.rglob("*")) == before


NO_TEMPORARY_FOLDER = """
import json, os, resource
from trainbox import environment
from trainbox.config import RunConfig
from trainbox.devices import select
from trainbox.errors import UsageError
config = RunConfig(device="cpu")
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # no file can be written anywhere
try:
    environment.apply(config, select(config, gpus=[], environ={}), environ=os.environ)
except UsageError as error:
    print(json.dumps(str(error)))
"""


def test_no_temporary_folder_is_told_before_tensorflow_fails_on_it():
    """TensorFlow's import dies without one, so a read-only root without /tmp is named first."""
    assert run(NO_TEMPORARY_FOLDER) == (
        "no writable temporary folder, which TensorFlow needs: mount a tmpfs at /tmp, or set TMPDIR"
    )


# The GPU wheels


@pytest.fixture
def site(tmp_path):
    """A site-packages with an empty tensorflow, a cusolver of one function and the folder of the compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for a library to load")
    (tmp_path / "site" / "tensorflow").mkdir(parents=True)
    (tmp_path / "site" / "tensorflow" / "__init__.py").touch()
    (tmp_path / "site" / "nvidia" / "cuda_nvcc").mkdir(parents=True)
    library = tmp_path / "site" / "nvidia" / "cusolver" / "lib" / "libcusolver.so.11"
    library.parent.mkdir(parents=True)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcusolver.so.11", "-xc", "-o", library, "-"],
        input="int cusolver_version(void) { return 11; }",
        text=True,
        check=True,
    )
    return tmp_path / "site"


GPU_WHEELS = """
import ctypes, json, os, sys
from pathlib import Path
from trainbox import environment
from trainbox.config import RunConfig
from trainbox.devices import Selection
kind, data_dir = sys.argv[1:]
selection = Selection(kind=kind, replicas=1, visible_devices="", names=("A",), notice="")
environment.apply(RunConfig(data_dir=Path(data_dir)), selection, environ=os.environ)
def version():
    try:
        ctypes.CDLL("libcusolver.so.11")  # by name alone, as TensorFlow asks
    except OSError:
        return None
    return ctypes.CDLL(None).cusolver_version()
print(json.dumps([version(), os.environ.get("XLA_FLAGS"), "tensorflow" in sys.modules]))
"""


def on_gpu_wheels(site, kind, flags=None):
    environ = {**os.environ, "PYTHONPATH": str(site)}
    environ.pop("XLA_FLAGS", None)
    if flags is not None:
        environ["XLA_FLAGS"] = flags
    program = subprocess.run(
        [sys.executable, "-c", GPU_WHEELS, kind, str(site.parent)],
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(program.stdout)


def test_cusolver_is_there_before_tensorflow_asks_for_it(site):
    """Once preloaded the library is found by its name and its symbols by all; on the CPU it stays out."""
    own = f"--xla_gpu_cuda_data_dir={site}/nvidia/cuda_nvcc"
    assert on_gpu_wheels(site, "gpu") == [11, own, False]
    assert on_gpu_wheels(site, "cpu") == [None, None, False]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--xla_dump_to=/dump", "--xla_dump_to=/dump --xla_gpu_cuda_data_dir={site}/nvidia/cuda_nvcc"),
        ("--xla_gpu_cuda_data_dir=/opt/cuda", "--xla_gpu_cuda_data_dir=/opt/cuda"),
        ("/etc/xla.flags", "/etc/xla.flags"),
    ],
)
def test_a_users_xla_flags_are_appended_to_and_never_overwritten(site, flags, expected):
    """The user's own folder wins, and a file of flags stays the name of a file."""
    assert on_gpu_wheels(site, "gpu", flags)[1] == expected.format(site=site)


def test_without_the_gpu_wheels_nothing_is_loaded(tmp_path):
    """The CPU's TensorFlow has no such folder."""
    assert environment.preload_gpu_libraries(tmp_path) == []


def test_a_gpu_library_that_cannot_be_loaded_is_named(tmp_path):
    """A wheel cut short by a full disk is told by its path, not by a run on the CPU."""
    library = tmp_path / "nvidia" / "cusolver" / "lib" / "libcusolver.so.11"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"\x7fELF")
    with pytest.raises(DevicesError) as caught:
        environment.preload_gpu_libraries(tmp_path)
    assert str(caught.value) == (
        f"cannot load {library}, without which TensorFlow sees no GPU ({library}: file too short): "
        "install the GPU wheels again, or train with --device cpu"
    )


def test_a_reproducible_run_decides_itself_what_onednn_does():
    """TensorFlow would turn oneDNN on by the generation of the CPU, and a shell may turn it off or limit it."""
    environ = {"ONEDNN_MAX_CPU_ISA": "AVX", "DNNL_MAX_CPU_ISA": "AVX", "TF_ENABLE_ONEDNN_OPTS": "0"}
    notices = environment.apply(RunConfig(reproducible=True), CPU, environ=environ)
    assert notices == [
        "environment: DNNL_MAX_CPU_ISA, ONEDNN_MAX_CPU_ISA, TF_ENABLE_ONEDNN_OPTS ignored: --reproducible and "
        "--cpu-baseline decide it"
    ]
    assert environ["TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert not environ.keys() & {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}
    baseline = RunConfig(reproducible=True, cpu_baseline="avx512")
    assert environment.apply(baseline, CPU, environ=environ) == []
    assert environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE"


def test_a_fast_run_leaves_onednn_to_the_user():
    """Their values are kept, and the manifest records them."""
    environ = applied(TF_ENABLE_ONEDNN_OPTS="0", ONEDNN_MAX_CPU_ISA="AVX2")
    assert (environ["TF_ENABLE_ONEDNN_OPTS"], environ["ONEDNN_MAX_CPU_ISA"]) == ("0", "AVX2")
