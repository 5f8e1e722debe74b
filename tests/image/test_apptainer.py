"""The SIF in real Apptainer: the one of apptainer.def, and one made of the Docker image."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import trainbox

pytestmark = pytest.mark.apptainer

ROOT = Path(__file__).parents[2]
# Nothing of the host: no environment, no home, no /tmp.
SEALED = ("--containall", "--cleanenv", "--no-home")
ZSTD = ("--mksquashfs-args", "-comp zstd -Xcompression-level 3")


def apptainer(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Apptainer with these words."""
    environ = {**os.environ, **variables}
    return subprocess.run(["apptainer", *map(str, words)], capture_output=True, text=True, timeout=600, env=environ)


@pytest.fixture(scope="session")
def docker_sif(sif, shared, image, docker) -> Path:
    """A SIF made of the Docker image."""
    archive, path = shared / "image.tar", shared / "docker.sif"
    assert docker("save", "--output", str(archive), image).returncode == 0
    archive.chmod(0o644)
    done = apptainer("build", *ZSTD, path, f"docker-archive:{archive}")
    archive.unlink()
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture(params=["sif", "docker_sif"])
def either(request) -> Path:
    """Each of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def mounts(shared) -> Path:
    """A folder with writable `data` and `output` in it."""
    folder = Path(tempfile.mkdtemp(dir=shared))
    for path in (folder, folder / "data", folder / "output"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    return folder


def binds(folder: Path) -> tuple[str, ...]:
    """The words that bind what `mounts` made."""
    return ("--bind", f"{folder / 'data'}:/data", "--bind", f"{folder / 'output'}:/output")


def result(run: Path) -> dict[str, str]:
    """The two digests that say whether two runs are the same."""
    kept = json.loads((run / "manifest.json").read_text())["result"]
    return {"weights": kept["weights"], "metrics": kept["metrics"]}


def test_exec_and_run_lead_to_the_same_command(either):
    """`exec … trainbox` passes through the same script as `run`."""
    version = f"trainbox {trainbox.__version__}\n"
    assert apptainer("exec", *SEALED, either, "trainbox", "--version").stdout == version
    assert apptainer("run", *SEALED, either, "--version").stdout == version


def test_a_sealed_run_trains_and_its_files_are_the_callers(either, mounts):
    """64 MB of /tmp, no home and no environment are enough; inside and outside the user is the same."""
    done = apptainer("run", *SEALED, *binds(mounts), either, "train", "--epochs", "1", "--run", "first")
    assert done.returncode == 0, done.stderr
    uid = int(apptainer("exec", either, "id", "-u").stdout)
    files = list((mounts / "output").rglob("*"))
    assert mounts / "output" / "first" / "manifest.json" in files
    assert {path.stat().st_uid for path in files} == {uid}


def test_its_own_test_passes(sif):
    """`apptainer test` imports TensorFlow, trains and evaluates."""
    done = apptainer("test", *SEALED, sif)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tensorflow 2\.21\.0 keras 3\.15\.1$", done.stdout, re.MULTILINE)


def test_the_hosts_python_does_not_get_in(either, mounts):
    """A python first on PATH and packages on PYTHONPATH, as an active conda environment leaves them, change nothing."""
    fakes = mounts / "fakes"
    fakes.mkdir()
    for name in ("python", "python3"):
        (fakes / name).write_text("#!/bin/sh\nexit 99\n")
        (fakes / name).chmod(0o755)
    for name in ("keras", "numpy", "typer"):
        (fakes / f"{name}.py").write_text("raise SystemExit(98)\n")
    host = {"APPTAINERENV_PREPEND_PATH": str(fakes), "APPTAINERENV_PYTHONPATH": str(fakes)}
    words = ("train", "--epochs", "1")
    for command in (("run", *binds(mounts), either, *words), ("exec", *binds(mounts), either, "trainbox", *words)):
        done = apptainer(*command[:1], "--bind", fakes, *command[1:], **host)
        assert done.returncode == 0, done.stderr


def test_a_signal_reaches_the_job(sif, mounts):
    """SIGTERM to Apptainer, as from Slurm, ends the run with 143 and a checkpoint."""
    words = [*SEALED, *binds(mounts), str(sif), "train", "--epochs", "10000", "--run", "stopped"]
    process = subprocess.Popen(
        ["apptainer", "run", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    metrics = mounts / "output" / "stopped" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while process.poll() is None and not (metrics.exists() and metrics.read_text()) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 143, log
    assert list((mounts / "output" / "stopped" / "checkpoints").iterdir())


# All that a run can touch, and the bill of materials; the rest of the root file system is Debian's, listed by package.
INVENTORY = """
cat /usr/share/trainbox/python-packages.txt /usr/share/trainbox/debian-packages.txt
cd / && find opt/trainbox usr/local/bin usr/share/trainbox -type f -exec sha256sum {} + | sort -k 2
find opt/trainbox usr/local/bin usr/share/trainbox -printf '%M %TF %p %l\\n' | sort
"""


def test_every_way_to_build_gives_the_same_packages_and_files(docker, image, sif, docker_sif):
    """Docker image, SIF of it, and SIF of apptainer.def agree on packages and on each file's digest, mode and date."""
    command = ("sh", "-c", INVENTORY)
    reference = docker("run", "--rm", image, *command).stdout.splitlines()
    assert any(line.startswith("tensorflow-cpu==") for line in reference)
    assert len(reference) > 10_000
    for path in (docker_sif, sif):
        assert sorted(set(apptainer("exec", *SEALED, path, *command).stdout.splitlines()) ^ set(reference)) == []


@pytest.mark.parametrize("mode", [(), ("--reproducible",)])
def test_the_same_bits_in_virtualenv_docker_and_apptainer(docker, image, sif, mounts, tmp_path, stranger, mode):
    """One seed, three runtimes: equal losses and weights; with --reproducible also on one core, as another user."""
    words = ["train", "--epochs", "2", "--seed", "7", "--run", "same", *mode]
    own = [Path(sys.executable).parent / "trainbox", *words, "--data-dir", tmp_path / "data", "--output-dir", tmp_path]
    subprocess.run(own, check=True, capture_output=True)
    done = apptainer("run", *SEALED, *binds(mounts), sif, *words)
    assert done.returncode == 0, done.stderr
    in_docker = mounts / "docker"
    in_docker.mkdir()
    in_docker.chmod(0o777)
    other = ("--user", f"{stranger}:{stranger}", "--cpuset-cpus", "0")
    who = other if mode else ("--user", f"{os.getuid()}:{os.getgid()}")
    volumes = ("--volume", f"{mounts / 'data'}:/data", "--volume", f"{in_docker}:/output")
    done = docker("run", "--rm", *who, "--network", "none", *volumes, image, *words)
    assert done.returncode == 0, done.stderr
    assert result(in_docker / "same") == result(tmp_path / "same")
    assert result(mounts / "output" / "same") == result(tmp_path / "same")
