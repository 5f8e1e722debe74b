"""The GPU image, on a machine without GPUs: whether TensorFlow would find what it needs."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu_image

PROBE = Path(__file__).with_name("gpu_loader.py")
UNDO = "rm /etc/ld.so.conf.d/trainbox-nvidia.conf && ldconfig &&"


@pytest.fixture
def loader(docker, gpu_image):
    """What TensorFlow's loader finds in the image, after a shell command as root."""

    def ask(before: str = "") -> dict[str, bool]:
        command = f"{before} exec /opt/trainbox/bin/python -I /gpu_loader.py"
        mount = ["--volume", f"{PROBE}:/gpu_loader.py:ro"]
        run = docker("run", "--rm", "--user", "0", "--network", "none", *mount, gpu_image, "sh", "-c", command)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return ask


def test_the_loader_finds_every_gpu_library(loader):
    """TensorFlow opens all libraries of its wheels, so that a GPU would be used."""
    found = loader()
    assert all(found.values()), found
    assert "MaybeTryDlopenGPULibraries" in found


def test_without_the_mend_cusolver_is_missing(loader):
    """The linker's entry is what makes the difference; when this fails, TensorFlow has mended itself."""
    missing = [name for name, ok in loader(UNDO).items() if not ok]
    assert missing == ["Cusolver", "MaybeTryDlopenGPULibraries"]


def test_ptxas_and_libdevice_serve_any_user(docker, gpu_image):
    """What XLA compiles kernels with is there, and readable and executable for an unknown uid."""
    folder = "/opt/trainbox/lib/python3.13/site-packages/nvidia/cuda_nvcc"
    check = f"cd {folder} && bin/ptxas --version && cat nvvm/libdevice/libdevice.10.bc >/dev/null"
    run = docker("run", "--rm", "--user", "54321:54321", gpu_image, "sh", "-c", check)
    assert run.returncode == 0, run.stderr


def test_the_image_asks_for_gpus(docker, gpu_image):
    """NVIDIA's runtime is told to hand in all GPUs and the parts of the driver that TensorFlow uses."""
    variables = json.loads(docker("inspect", "--format", "{{json .Config.Env}}", gpu_image).stdout)
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} <= set(variables)
