"""Other users: without a name or a home, with a folder that is not theirs, in a group that shares its results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

STRANGER = 54321
BECOME = (
    "setpriv",
    f"--reuid={STRANGER}",
    f"--regid={STRANGER}",
    "--clear-groups",
    "env",
    "-u",
    "USER",
    "-u",
    "LOGNAME",
)
GROUP = ("sh", "-c", 'umask 002; exec "$@"', "sh")


@pytest.fixture(scope="module", autouse=True)
def stranger():
    """Skips where this process may not become somebody else, or that one may not start this Python."""
    command = [*BECOME, sys.executable, "-c", "import trainbox"]
    if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can run as another user, who must be able to start this Python")


@pytest.fixture(scope="module")
def open_place(place):
    """The place where everybody can get at it."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place.folder, before = Path(folder), place.folder
        place.data_dir = Path(shutil.copytree(place.data_dir, place.folder / "data"))
        place.data_dir.chmod(0o755)
        (place.folder / "output").mkdir()
        os.chown(place.folder / "output", STRANGER, STRANGER)
        yield place
        place.stop()
        place.folder = before


@pytest.fixture(scope="module")
def trained(open_place):
    """A run of the stranger's, whose group may write what they make."""
    words = ("train", "--run", "theirs", "--epochs", "1")
    return open_place.trainbox(*words, fresh=True, prefix=(*BECOME, *GROUP), HOME="/")


def test_a_user_without_a_name_or_a_home_trains(open_place, trained):
    """F1: known by number; F3: every file is theirs, and their group's too, as the umask says."""
    assert (trained.ended, trained.err) == (0, "")
    run = open_place.run("theirs")
    assert json.loads((run.path / "manifest.json").read_text())["user"] == str(STRANGER)
    for path in [run.path, *run.path.rglob("*")]:
        assert (path.stat().st_uid, path.stat().st_gid) == (STRANGER, STRANGER)
        assert path.stat().st_mode & 0o777 == (0o775 if path.is_dir() else 0o664), path


def test_a_run_that_may_only_be_read_is_evaluated(open_place, trained):
    """F4: by somebody else, who can write nothing there; to export or to train is refused in one line, exit 2."""
    run = open_place.run("theirs")
    shutil.copytree(run.path, open_place.run("ours").path)
    read_only = {"fresh": True, "prefix": BECOME, "HOME": "/"}
    evaluated = open_place.trainbox("evaluate", "ours", "--json", **read_only)
    assert evaluated.ended == 0, evaluated.err
    assert json.loads(evaluated.out)["loss"] == run.result["test/loss"]
    for words in (("export", "ours"), ("train", "--run", "ours", "--epochs", "2")):
        command = open_place.trainbox(*words, **read_only)
        assert (command.ended, command.complaint) == (
            2,
            "cannot write output/ours: Permission denied; mount or choose another folder with --output-dir",
        )
