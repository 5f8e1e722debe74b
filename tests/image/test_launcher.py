"""The launcher `./trainbox` with a real engine and a real Apptainer."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODEL = """
import keras

def build(input_shape, num_classes):
    return keras.Sequential([keras.Input(input_shape), keras.layers.Flatten(), keras.layers.Dense(num_classes)])
"""


@pytest.fixture
def work(shared: Path) -> Iterator[Path]:
    """A current folder with a model in it, a `.env`, and folders that Apptainer's user can write to."""
    folder = shared / "work folder"
    for path in (folder, folder / "data", folder / "output"):
        path.mkdir()
        path.chmod(0o777)
    (folder / "net.py").write_text(MODEL)
    (folder / ".env").write_text("TRAINBOX_EPOCHS='2'\nTRAINBOX_OUTPUT_DIR=./output\n")
    yield folder
    shutil.rmtree(folder)


def train(runtime: str, work: Path) -> dict[str, Any]:
    """Train the folder's own model by the launcher; the manifest of the run."""
    words = ["train", "--model", "net.py:build", "--run", "own"]
    environ = {**os.environ, "TRAINBOX_RUNTIME": runtime, "TRAINBOX_LEARNING_RATE": "0.01"}
    done = subprocess.run([ROOT / "trainbox", *words], cwd=work, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in work.iterdir()) == [".env", "data", "net.py", "output"]
    manifest: dict[str, Any] = json.loads((work / "output" / "own" / "manifest.json").read_text())
    assert (manifest["runtime"], manifest["config"]["learning_rate"]) == (runtime, 0.01)
    assert manifest["sources"]["epochs"] == ".env TRAINBOX_EPOCHS"
    return manifest


@pytest.mark.docker
def test_docker_trains_own_code_as_the_caller(image, work):
    """Model, `.env` and variables reach the container; what it leaves is the caller's and says where it comes from."""
    manifest = train("docker", work)
    assert manifest["image"]["digest"].startswith("sha256:")
    assert manifest["host"]["name"] == os.uname().nodename
    files = list((work / "output").rglob("*"))
    assert {(path.stat().st_uid, path.stat().st_gid) for path in files} == {(os.getuid(), os.getgid())}


@pytest.mark.apptainer
def test_apptainer_trains_own_code_as_the_caller(sif, work):
    """The same in Apptainer, which knows no name for a host of its own."""
    assert train("apptainer", work)["image"]["name"] == str(sif)
