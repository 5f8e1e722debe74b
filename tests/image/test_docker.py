"""The CPU image in a real container engine."""

import hashlib
import json
import re
import shutil
import socket
import time
import urllib.request
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
# What TensorFlow writes before it can be told not to; that of oneDNN only on processors that it is on for.
EXPECTED = re.compile(
    r"All log messages before absl::InitializeLog|cpu_feature_guard|rebuild TensorFlow with|oneDNN custom operations"
)
UNWANTED = re.compile(r"warning|deprecated|error|traceback", re.IGNORECASE)


def unexpected(log: str) -> list[str]:
    """Lines of a log that tell of trouble, apart from those that TensorFlow always writes."""
    return [line for line in log.splitlines() if UNWANTED.search(line) and not EXPECTED.search(line)]


def test_a_stranger_without_privileges_trains(docker, image, mounts, confined, stranger):
    """An unknown uid on a read-only root, without network or capabilities, trains; all that it leaves is its own."""
    words = ["train", "--epochs", "1", "--run", "first"]
    run = docker("run", "--rm", *confined, *mounts.words, image, *words)
    assert run.returncode == 0, run.stderr
    log = run.stdout + run.stderr
    assert unexpected(log) == []
    assert not set(log) & set("\b\r\x1b")
    files = list(mounts.output.rglob("*"))
    assert (mounts.output / "first" / "manifest.json") in files
    assert {(path.stat().st_uid, path.stat().st_gid) for path in files} == {(stranger, stranger)}


def test_stop_saves_a_checkpoint_within_ten_seconds(docker, image, mounts, confined):
    """`docker stop` ends a run with 143 before the engine's patience does, and leaves a checkpoint."""
    words = ["train", "--epochs", "10000", "--run", "stopped"]
    name = docker("run", "--detach", *confined, *mounts.words, image, *words).stdout.strip()
    try:
        metrics = mounts.output / "stopped" / "metrics.jsonl"
        deadline = time.monotonic() + 120
        while not metrics.exists() or not metrics.read_text():
            assert time.monotonic() < deadline, docker("logs", name).stderr
            time.sleep(0.2)
        begin = time.monotonic()
        docker("stop", name)
        assert time.monotonic() - begin < 10
        assert docker("inspect", "--format", "{{.State.ExitCode}}", name).stdout == "143\n"
        assert list((mounts.output / "stopped" / "checkpoints").iterdir())
    finally:
        docker("rm", "--force", name)


def test_an_output_folder_that_cannot_be_written_is_told_first(docker, image, mounts, confined, stranger):
    """Exit 2 and one line, before TensorFlow is loaded."""
    mounts.output.chmod(0o755)
    run = docker("run", "--rm", *confined, *mounts.words, image, "train")
    assert run.returncode == 2
    assert run.stderr == (
        f"trainbox: /output is not writable for uid {stranger}; mount a folder of that user there "
        "(docker: -v FOLDER:/output --user UID:GID, apptainer: --bind FOLDER:/output)\n"
    )
    assert run.stdout == ""


def test_folders_that_are_no_mounts_are_warned_of(docker, image):
    """What is written to a folder of the container is lost with it, and one line for each folder says so."""
    run = docker("run", "--rm", "--network", "none", image, "train", "--model", "nonesuch")
    *warnings, failure = run.stderr.splitlines()
    assert warnings == [
        f"trainbox: warning: {folder} is not a mount; what is written there ends with the container"
        for folder in ("/data", "/output")
    ]
    assert "nonesuch" in failure


@pytest.mark.parametrize(
    "words", [["train", "--help"], ["trainbox", "train", "--help"], ["/usr/local/bin/trainbox", "train", "-h"]]
)
def test_a_word_is_a_command_of_trainbox(docker, image, confined, words):
    """With or without the program's name, on a bare read-only root."""
    run = docker("run", "--rm", *confined, image, *words)
    assert run.returncode == 0, run.stderr
    assert "--epochs" in run.stdout
    assert run.stderr == ""


@pytest.mark.parametrize(
    "words", [["python", "-c", "print(6 * 7)"], ["sh", "-c", "echo 42"], ["/usr/bin/printf", "42\n"]]
)
def test_programs_run_as_they_are(docker, image, words):
    """An interpreter, a shell and any path are no commands of trainbox."""
    assert docker("run", "--rm", image, *words).stdout == "42\n"


def test_nothing_of_the_hosts_python_gets_in(docker, image, tmp_path):
    """Variables and folders that would change what is imported are without effect."""
    for name in ("typer", "sitecustomize", "usercustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    home = tmp_path / ".local/lib/python3.13/site-packages"
    home.mkdir(parents=True)
    shutil.copy(tmp_path / "typer.py", home)
    variables = {"PYTHONPATH": "/host", "PYTHONHOME": "/host", "PYTHONSTARTUP": "/host/typer.py", "HOME": "/host"}
    flags = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    run = docker("run", "--rm", "--volume", f"{tmp_path}:/host:ro", "--workdir", "/host", *flags, image, "--version")
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("flags", "folder"),
    [((), "/tmp"), (("--env", "TMPDIR=/of/the/host"), "/tmp"), (("--read-only",), "/dev/shm")],
)
def test_a_temporary_folder_is_found(docker, image, flags, folder):
    """What needs one works with a host's TMPDIR and on a read-only root without /tmp."""
    code = "import os, tempfile; print(tempfile.gettempdir(), os.access(os.environ['HOME'], os.W_OK))"
    run = docker("run", "--rm", "--user", "54321", *flags, image, "python", "-c", code)
    assert run.stdout == f"{folder} True\n", run.stderr


def test_labels_tell_what_the_image_was_made_from(docker, image, unavailable):
    """Revision, version and digest of the lock file are those of what lies inside; the base has a name."""
    labels = json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", image).stdout)
    if labels["org.opencontainers.image.version"] == "unknown":
        unavailable("docker", "the image was built without its version as an argument")
    record = json.loads(docker("run", "--rm", image, "/bin/cat", "/usr/share/trainbox/image.json").stdout)
    locked = docker("run", "--rm", image, "/bin/cat", "/usr/share/trainbox/requirements.txt").stdout
    version = docker("run", "--rm", image, "--version").stdout.split()[-1]
    digest = hashlib.sha256(locked.encode()).hexdigest()
    assert labels["org.opencontainers.image.revision"] == record["revision"]
    assert labels["org.opencontainers.image.version"] == record["version"] == version
    assert labels["trainbox.variant"] == record["variant"] == "cpu"
    assert labels["org.opencontainers.image.base.name"]
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", record["revision"])
    assert labels["trainbox.requirements.sha256"] == record["requirements_sha256"] == digest


def test_the_image_records_its_packages(docker, image):
    """The list of Debian packages is the one that dpkg gives, so that an old image can still be told apart."""
    query = "dpkg-query --show --showformat '${Package} ${Version} ${Architecture}\\n'"
    record = "/usr/share/trainbox/debian-packages.txt"
    run = docker("run", "--rm", image, "sh", "-c", f"{query} | diff - {record}")
    assert (run.returncode, run.stdout) == (0, "")


def test_byte_code_holds_whatever_the_time_stamps_say(docker, image):
    """Every module has byte code that is never checked against its source's time (flags 1 in its header)."""
    check = (
        "import importlib.util as u, pathlib, sysconfig\n"
        "for root in (sysconfig.get_path('purelib'), sysconfig.get_path('stdlib')):\n"
        "    for source in pathlib.Path(root).rglob('*.py'):\n"
        "        code = pathlib.Path(u.cache_from_source(source))\n"
        "        if not code.exists() or code.read_bytes()[4:8] != b'\\1\\0\\0\\0': print(source)\n"
    )
    run = docker("run", "--rm", image, "python", "-c", check)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.fixture
def compose(docker, image, mounts, stranger, tmp_path, unavailable):
    """`docker compose` in a project of its own, with a .env file."""
    if docker("compose", "version").returncode:
        unavailable("docker", "docker compose is not installed")
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / "compose.yaml", project)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (project / ".env").write_text(
        f"UID={stranger}\nGID={stranger}\nTRAINBOX_IMAGE={image}\nTRAINBOX_EPOCHS=1\nTENSORBOARD_PORT={port}\n"
        f"TRAINBOX_DATA_DIR={mounts.data}\nTRAINBOX_OUTPUT_DIR={mounts.output}\n"
    )
    base = ["compose", "--project-directory", str(project), "--project-name", f"trainbox-{uuid.uuid4().hex[:8]}"]
    yield lambda *words: docker(*base, *words), port
    docker(*base, "down", "--volumes", "--timeout", "1")


def test_compose_trains_and_shows_the_run(compose, mounts, stranger):
    """`run train` takes flags and .env, files are the caller's, and TensorBoard shows the run to this machine only."""
    compose, port = compose
    run = compose("run", "--rm", "train", "--run", "composed")
    assert run.returncode == 0, run.stderr
    config = mounts.output / "composed" / "config.json"
    assert json.loads(config.read_text())["values"]["epochs"] == 1
    assert config.stat().st_uid == stranger
    up = compose("up", "--wait", "--detach", "tensorboard")
    assert up.returncode == 0, up.stderr
    assert compose("port", "tensorboard", "6006").stdout == f"127.0.0.1:{port}\n"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/runs", timeout=30) as answer:
        assert any(name.startswith("composed") for name in json.load(answer))
