"""GPUs that a CDI specification hands into the image, as NVIDIA's does: here plain files and the stub of NVML.

Needs an engine that reads specifications from the folder of these tests, as that of `.ci/engine` does.
"""

import json
import shutil
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
SPECIFICATIONS = Path("/run/ci-engine/cdi")
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
GPUS = [
    f"gpu 0:{number}b.0 0 -1 85899345920 9.0 GPU-{number}0000000-0000-0000-0000-000000000000 NVIDIA H100\n"
    for number in range(3)
]


def mount(path: Path, inside: str) -> dict[str, object]:
    return {"hostPath": str(path), "containerPath": inside, "options": ["ro", "nosuid", "nodev", "bind"]}


@pytest.fixture
def gpus(docker, image, nvml_stub, tmp_path, unavailable):
    """`nvidia.com/gpu=0`, `=1`, `=2` and `=all`, each of which a container sees as GPUs of the machine."""
    known = json.loads(docker("info", "--format", "{{json .CDISpecDirs}}").stdout or "[]")
    if str(SPECIFICATIONS) not in known:
        unavailable(
            "cdi", f"the engine reads no CDI specification from {SPECIFICATIONS}; .ci/engine starts one that does"
        )
    tmp_path.chmod(0o755)
    devices = []
    for name, described in [*((str(number), [gpu]) for number, gpu in enumerate(GPUS)), ("all", GPUS)]:
        path = tmp_path / name
        path.write_text("driver 570.86.10\n" + "".join(described))
        devices.append({"name": name, "containerEdits": {"mounts": [mount(path, "/usr/share/gpus")]}})
    library = shutil.copy(nvml_stub / "libnvidia-ml.so.1", tmp_path)
    common = {"env": ["NVML_STUB=/usr/share/gpus", "NVIDIA_VISIBLE_DEVICES=void"], "mounts": [mount(library, LIBRARY)]}
    specification = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": common,
    }
    SPECIFICATIONS.mkdir(exist_ok=True)
    file = SPECIFICATIONS / "trainbox-tests.json"
    file.write_text(json.dumps(specification))
    yield
    file.unlink()


def devices(docker, *flags, image, confined):
    run = docker("run", "--rm", *confined, *flags, image, "devices", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    return [(gpu["index"], gpu["uuid"][:6]) for gpu in json.loads(run.stdout)["gpus"]]


def test_the_engine_hands_in_all_gpus_or_one(docker, image, confined, gpus):
    """Inside they are numbered from 0, whatever the host calls them; without a request there is none."""
    ask = {"image": image, "confined": confined}
    assert devices(docker, "--device", "nvidia.com/gpu=all", **ask) == [(0, "GPU-00"), (1, "GPU-10"), (2, "GPU-20")]
    assert devices(docker, "--device", "nvidia.com/gpu=2", **ask) == [(0, "GPU-20")]
    assert devices(docker, **ask) == []


def test_a_run_in_the_image_for_cpus_refuses_the_gpus(docker, image, mounts, confined, gpus):
    """A machine with GPUs and the wrong image: exit 3 and the reason, never a silent run on the CPU."""
    flags = [*confined, "--device", "nvidia.com/gpu=all", *mounts.words]
    run = docker("run", "--rm", *flags, image, "train", "--run", "refused")
    assert run.returncode == 3
    assert run.stderr.startswith(
        "trainbox: TensorFlow cannot use any of the 3 selected GPUs: tensorflow-cpu 2.21.0 is built without CUDA; "
    )
    docker_run = docker("run", "--rm", *flags, "--env", "CUDA_VISIBLE_DEVICES=3", image, "train", "--run", "refused")
    assert docker_run.returncode == 3
    assert "its entry '3' is out of range: numbers here are 0 to 2" in docker_run.stderr


def test_composes_device_request_hands_them_in(docker, image, mounts, gpus, stranger, tmp_path):
    """The place in the file where NVIDIA's driver is asked for, here with the CDI driver in its place."""
    for name in ("compose.yaml", "compose.gpu.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    request = "driver: nvidia\n              count: all\n"
    text = (tmp_path / "compose.gpu.yaml").read_text()
    assert request in text
    (tmp_path / "compose.gpu.yaml").write_text(
        text.replace(request, 'driver: cdi\n              device_ids: ["nvidia.com/gpu=all"]\n')
    )
    (tmp_path / ".env").write_text(
        f"UID={stranger}\nGID={stranger}\nTRAINBOX_IMAGE={image}\n"
        f"TRAINBOX_DATA_DIR={mounts.data}\nTRAINBOX_OUTPUT_DIR={mounts.output}\n"
    )
    files = ["--file", str(tmp_path / "compose.yaml"), "--file", str(tmp_path / "compose.gpu.yaml")]
    project = ["compose", "--project-name", f"trainbox-{uuid.uuid4().hex[:8]}", "--project-directory", str(tmp_path)]
    run = docker(*project, *files, "run", "--rm", "train", "--gpus", "4")
    docker(*project, *files, "down", "--timeout", "1")
    assert run.returncode == 3, run.stderr
    assert "3 GPUs, driver 570.86.10; this process may use 3" in run.stdout
    assert "--gpus 4: this process sees 3 of 3 GPUs: 0 NVIDIA H100 (GPU-00000000)" in run.stderr
