"""The doctor on what TensorFlow needs for GPUs: its build, libraries, compiler, kernels, and its own list."""

import pickle
import shutil
import subprocess
import sys

import pytest

from trainbox import gpu_libraries
from trainbox.devices import Gpu, Inventory, Surroundings, describe
from trainbox.doctor import CHECKS, Case, Compared

PROGRAM = "import pickle, sys; from trainbox import gpu_libraries as g; " + (
    "sys.stdout.buffer.write(pickle.dumps((g.site(), g.examine())))"
)
GPU_IMAGE = (
    "use the GPU image (docker build -t trainbox .), or in an environment of its own: pip install --require-hashes -r "
    "requirements/gpu.txt"
)
CPU_BUILD = {"tensorflow-cpu": "2.21.0"}


def built(count=1, *, capability=(8, 0), driver="580.65.06", environ=None, **more):
    gpus = tuple(
        Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA GB10", driver=driver, compute_capability=capability)
        for n in range(count)
    )
    inventory = Inventory(gpus=gpus, driver=driver, absence=None if gpus else "no library")
    environ = environ or {}
    listing = describe(inventory, environ=environ, around=Surroundings())
    return Case(inventory=inventory, listing=listing, environ=environ, **more)


def found(check, case):
    """The severity and message of each finding."""
    return [(one.severity, one.message) for one in CHECKS[check](case)]


@pytest.fixture
def wheels(tmp_path):
    """A site-packages with a TensorFlow that is not imported, and a library of one variable for each of CUDA's."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for libraries to load")
    site = tmp_path / "site"
    (site / "tensorflow").mkdir(parents=True)
    (site / "tensorflow" / "__init__.py").touch()
    for name, soname in gpu_libraries.SONAMES.items():
        path = site / "nvidia" / name / "lib" / soname
        path.parent.mkdir(parents=True)
        words = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-xc", "-o", str(path), "-"]
        subprocess.run(words, input=f"int {name};", text=True, check=True)
    return site


def opened(site, count, **environ):
    """A case in which a new process has opened the libraries of that site-packages."""
    variables = {"PYTHONPATH": str(site), **environ}
    child = subprocess.run([sys.executable, "-c", PROGRAM], env=variables, capture_output=True, check=True)
    where, libraries = pickle.loads(child.stdout)
    assert where == site
    return built(count, libraries=lambda: libraries, site=site, environ=environ)


def test_all_libraries_load(wheels):
    """Those of the wheels, on any number of GPUs."""
    assert found("GPU libraries", opened(wheels, 4)) == [("ok", "9 GPU libraries load")]


def test_each_library_that_does_not_load_is_named(wheels, tmp_path):
    """With its path and why; without NCCL a single GPU is used all the same, and without any GPU nothing is needed."""
    (wheels / "nvidia/cusolver/lib/libcusolver.so.11").unlink()
    (wheels / "nvidia/nccl/lib/libnccl.so.2").unlink()
    broken = wheels / "nvidia/cudnn/lib/libcudnn.so.9"
    broken.write_bytes(b"\x7fELF")
    cudnn = f"{broken} does not load: {broken}: file too short"
    cusolver, nccl = "libcusolver.so.11 is not found", "libnccl.so.2 is not found"
    two, one, none = (opened(wheels, count) for count in (2, 1, 0))
    assert found("GPU libraries", two) == [("failure", cudnn), ("failure", cusolver), ("failure", nccl)]
    assert {one.remedy for one in CHECKS["GPU libraries"](two)} == {GPU_IMAGE}
    assert found("GPU libraries", one)[2] == ("note", f"{nccl}; only several GPUs would need it")
    assert found("GPU libraries", none)[1] == ("note", f"{cusolver}; only GPUs would need it")


def test_a_library_of_the_hosts_that_does_not_load(wheels, tmp_path):
    """LD_LIBRARY_PATH put it first; without the variable all is well."""
    (tmp_path / "libcudnn.so.9").write_bytes(b"old")
    case = opened(wheels, 1, LD_LIBRARY_PATH=str(tmp_path))
    assert found("GPU libraries", case) == [
        (
            "failure",
            f"{tmp_path}/libcudnn.so.9 does not load: {tmp_path}/libcudnn.so.9: file too short "
            f"(LD_LIBRARY_PATH='{tmp_path}')",
        )
    ]
    assert CHECKS["GPU libraries"](case)[0].remedy == f"unset LD_LIBRARY_PATH, or {GPU_IMAGE}"


def test_a_build_for_cpus_on_a_machine_with_gpus():
    """NVML 2, TensorFlow 0: two failures with the same remedy; without GPUs neither is one."""
    case = built(2, built_for_gpus=False, packages=CPU_BUILD)
    assert found("GPU libraries", case) == [("failure", "tensorflow-cpu 2.21.0 is built without CUDA and uses no GPU")]
    assert found("TensorFlow", case) == [
        (
            "failure",
            "this process may use 2 GPUs and TensorFlow lists 0: tensorflow-cpu 2.21.0 is built without CUDA",
        )
    ]
    assert CHECKS["GPU libraries"](case)[0].remedy == CHECKS["TensorFlow"](case)[0].remedy == GPU_IMAGE
    bare = built(0, built_for_gpus=False, packages=CPU_BUILD)
    assert [found(name, bare)[0][0] for name in ("GPU libraries", "TensorFlow")] == ["ok", "ok"]


def test_no_tensorflow_at_all():
    """A failure of any machine."""
    assert found("GPU libraries", built(0)) == [("failure", "TensorFlow is not installed")]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (Compared(count=2), ("ok", "TensorFlow lists 2 GPUs, as the driver does")),
        (Compared(count=1, difference="2 and 1"), ("failure", "2 and 1")),
        (
            Compared(difference="no answer in 180 s"),
            ("warning", "TensorFlow did not list its GPUs: no answer in 180 s"),
        ),
    ],
)
def test_tensorflows_own_list_is_compared(compared, expected):
    """A difference is a failure; no answer is not yet one."""
    assert found("TensorFlow", built(2, compare=lambda: compared)) == [expected]


def test_tensorflow_is_not_asked_in_vain():
    """Nor where it is not to be loaded."""
    assert found("TensorFlow", built(0, compare=lambda: pytest.fail("was asked")))[0][0] == "ok"
    assert found("TensorFlow", built(2)) == [("ok", "not compared")]


@pytest.fixture
def compiler(tmp_path):
    """A site-packages with ptxas and libdevice as the wheel has them."""
    wheel = tmp_path / "site" / "nvidia" / "cuda_nvcc"
    for name in ("bin/ptxas", "nvvm/libdevice/libdevice.10.bc"):
        (wheel / name).parent.mkdir(parents=True)
        (wheel / name).touch()
    (wheel / "bin/ptxas").chmod(0o755)
    return wheel


def test_ptxas_and_libdevice_are_in_the_wheel(compiler):
    """Each is missed by name, and ptxas has to be executable for this uid."""
    case = built(site=compiler.parents[1])
    assert found("compiler", case) == [("ok", f"ptxas and libdevice are in {compiler}")]
    (compiler / "bin/ptxas").chmod(0o644)
    assert [(one.severity, one.remedy) for one in CHECKS["compiler"](case)] == [
        ("failure", f"chmod a+rx {compiler}/bin/ptxas")
    ]
    (compiler / "bin/ptxas").unlink()
    (compiler / "nvvm/libdevice/libdevice.10.bc").unlink()
    assert found("compiler", case) == [
        (
            "failure",
            f"libdevice: {compiler}/nvvm/libdevice/libdevice.10.bc does not exist, without which XLA compiles nothing",
        ),
        ("warning", f"ptxas: {compiler}/bin/ptxas does not exist, so that the driver has to compile"),
    ]


def test_xla_flags_that_point_elsewhere(compiler, tmp_path):
    """As a toolkit without libdevice; the last of several folders is the one that counts."""
    flags = f"--xla_gpu_cuda_data_dir={compiler} --xla_gpu_cuda_data_dir={tmp_path}/cuda"
    case = built(site=compiler.parents[1], environ={"XLA_FLAGS": flags})
    assert [one.severity for one in CHECKS["compiler"](case)] == ["failure", "warning"]
    assert CHECKS["compiler"](case)[0].message.startswith(f"libdevice: {tmp_path}/cuda/nvvm/libdevice/libdevice.10.bc")
    assert CHECKS["compiler"](case)[0].remedy.startswith("unset XLA_FLAGS (now '--xla_gpu_cuda_data_dir=")
    mended = built(site=compiler.parents[1], environ={"XLA_FLAGS": f"--xla_gpu_cuda_data_dir={compiler}"})
    assert found("compiler", mended) == [("ok", f"ptxas and libdevice are in {compiler}")]


def test_nothing_is_compiled_without_the_wheels(tmp_path):
    """A build for CPUs has no wheel of CUDA's compiler."""
    case = built(site=tmp_path, built_for_gpus=False)
    assert found("compiler", case) == [("ok", "no GPU wheels here: nothing is compiled for GPUs")]


@pytest.mark.parametrize(
    ("capability", "severity"),
    [
        ((5, 2), "failure"),
        ((6, 1), "ok"),
        ((7, 5), "ok"),
        ((8, 0), "ok"),
        ((8, 6), "ok"),
        ((8, 9), "ok"),
        ((9, 0), "note"),
        ((12, 1), "note"),
    ],
)
def test_machine_code_for_a_compute_capability(tmp_path, capability, severity):
    """Kernels begin at 6.0; from 9.0 on the driver compiles them at the first start."""
    told = found("kernels", built(capability=capability, data_dir=tmp_path))
    assert [one[0] for one in told] == [severity]
    if severity == "failure":
        assert told[0][1] == "GPU 0 NVIDIA GB10 has compute capability 5.2, and TensorFlow's kernels begin at 6.0"


@pytest.mark.parametrize(
    ("environ", "message", "remedy"),
    [
        ({"CUDA_CACHE_DISABLE": "1"}, "CUDA_CACHE_DISABLE='1'", "unset CUDA_CACHE_DISABLE"),
        (
            {"CUDA_CACHE_MAXSIZE": "268435456"},
            "CUDA_CACHE_MAXSIZE=268435456 is less than they take",
            "export CUDA_CACHE_MAXSIZE=4294967296",
        ),
        (
            {"CUDA_CACHE_PATH": "/dev/null/cache"},
            "/dev/null/cache cannot be written",
            "export CUDA_CACHE_PATH=FOLDER (one that is kept and can be written)",
        ),
    ],
)
def test_what_is_compiled_is_kept(tmp_path, environ, message, remedy):
    """A cache that is off, too small or closed makes every start a first one."""
    case = built(capability=(12, 1), environ=environ, data_dir=tmp_path)
    assert found("kernels", case) == [
        ("warning", f"the kernels for NVIDIA GB10 (12.1) are compiled at every start, for minutes: {message}")
    ]
    assert CHECKS["kernels"](case)[0].remedy == remedy
    mended = built(capability=(12, 1), environ={"CUDA_CACHE_PATH": str(tmp_path)})
    assert found("kernels", mended) == [
        (
            "note",
            f"the kernels for NVIDIA GB10 (12.1) are compiled at the first start, for minutes, and kept in {tmp_path}",
        )
    ]
    assert [one[0] for one in found("kernels", built(capability=(8, 0), environ=environ))] == ["ok"]


def test_a_driver_that_may_refuse_to_compile(tmp_path):
    """Older than the CUDA that wrote the kernels, on a GPU that they have no machine code for."""
    packages = {"nvidia-cuda-runtime-cu12": "12.9.79"}
    case = built(capability=(12, 1), driver="550.54.15", packages=packages, data_dir=tmp_path)
    assert found("kernels", case)[0] == (
        "warning",
        "the kernels for NVIDIA GB10 (12.1) are compiled by the driver, and 550.54.15 is older than the 575.51.03 of "
        "CUDA 12.9: it may refuse them",
    )
    assert [one[0] for one in found("kernels", built(driver="550.54.15", packages=packages))] == ["ok"]
