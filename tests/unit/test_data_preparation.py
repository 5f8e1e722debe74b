"""Preparing for real: several at once, killed, without a network, a disk or a permission."""

import fcntl
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainbox.data import prepare, prepared
from trainbox.data.names import parse
from trainbox.errors import DataError

PROGRAM = """
import json, sys
from pathlib import Path
from trainbox.data.prepare import prepare
from trainbox.errors import DataError
try:
    info = prepare(sys.argv[1], data_dir=Path(sys.argv[2]), say=lambda text: print(text, file=sys.stderr, flush=True))
except DataError as error:
    print(error)
    sys.exit(error.exit_code)
print(json.dumps({"checksums": info.checksums, "tensorflow": "tensorflow" in sys.modules}))
"""


# Without an account; where Python lies in root's own folders, at least without root's right to write everywhere.
STRANGERS = [
    ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"),
    ("setpriv", "--bounding-set=-all", "--inh-caps=-all"),
]


def start(name: str, data_dir: Path, *before: str) -> subprocess.Popen[str]:
    """A process that prepares `name` as trainbox does, run by the command `before`."""
    command = [*before, sys.executable, "-c", PROGRAM, name, str(data_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(name: str, data_dir: Path, *before: str) -> tuple[int, str]:
    """Exit status and standard output of such a process."""
    process = start(name, data_dir, *before)
    output, _ = process.communicate(timeout=120)
    return process.returncode, output.strip()


def works(*command: str) -> bool:
    """Whether this machine lets us run `command`."""
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def refused(name: str, data_dir: Path, *, offline: bool = False) -> str:
    """The one line that preparing `name` ends with."""
    with pytest.raises(DataError) as refusal:
        prepare.prepare(name, data_dir=data_dir, offline=offline)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_three_at_once_prepare_one_set(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, digits_dir: Path
) -> None:
    """One of three processes prepares while two wait; all have the same files, and nothing else is left anywhere."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(temporary))
    processes = [start("digits", tmp_path) for _ in range(3)]
    outputs = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    expected = prepare.prepare("digits", data_dir=digits_dir).checksums
    for output, _ in outputs:
        assert json.loads(output) == {"checksums": expected, "tensorflow": False}
    said = sorted(line for _, errors in outputs for line in errors.splitlines())
    waiting = "another process prepares data set digits: waiting for it"
    assert said == [waiting, waiting, f"preparing data set digits in {tmp_path}/digits/1.0.0"]
    assert [file.name for file in (tmp_path / ".trainbox").iterdir()] == ["digits.lock"]
    assert not list(temporary.iterdir())


def test_a_killed_preparation_never_counts(tmp_path: Path) -> None:
    """After SIGKILL in the middle nothing is found and nobody works on; the next start prepares and cleans up."""
    process = start("digits", tmp_path)
    wait_for(lambda: any((tmp_path / ".trainbox").glob("digits.*/digits/incomplete.*")))
    process.kill()
    process.communicate()
    with (tmp_path / ".trainbox" / "digits.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # returns when the process that prepares has followed its parent
    assert len(list((tmp_path / ".trainbox").iterdir())) == 2
    assert prepared.find(parse("digits"), tmp_path) is None

    assert prepare.prepare("digits", data_dir=tmp_path).splits == {"train": 1438, "test": 359}
    assert [file.name for file in (tmp_path / ".trainbox").iterdir()] == ["digits.lock"]
    assert not list(tmp_path.rglob("incomplete*"))


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Return when `condition` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_without_a_network_it_says_so_at_once(tmp_path: Path) -> None:
    """With the network cut, an unprepared set is an error that says what, where and what to do, in 5 s of work."""
    cut = ("unshare", "--map-root-user", "--net")
    if not works(*cut, "true"):
        pytest.skip("this machine has no network namespaces for us")
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    status, line = run("mnist", tmp_path, *cut)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    assert status == 4
    assert re.fullmatch(
        rf"data set mnist is not prepared in {tmp_path}/mnist/3\.0\.1 and cannot be fetched from https://\S+\.gz: "
        r"storage\.googleapis\.com cannot be reached \(.*\); run 'trainbox data prepare mnist --data-dir "
        rf"DIR' where there is a network and bring DIR here as {tmp_path}",
        line,
    )
    # Processor time, because this machine may be busy; TFDS left to itself waits for 205 s.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert seconds < 30
    assert not list(tmp_path.rglob("*.tmp.*"))


def test_offline_asks_nobody(tmp_path: Path) -> None:
    """With --offline no source is asked, and the line says that it is the reason."""
    line = refused("kmnist:3.0.1", tmp_path, offline=True)
    assert line.startswith(
        f"data set kmnist:3.0.1 is not prepared in {tmp_path}/kmnist/3.0.1 and cannot be fetched from http:"
    )
    assert ".gz: --offline is set; run 'trainbox data prepare kmnist:3.0.1 " in line


def test_an_unknown_name_is_told_by_the_other_process(tmp_path: Path) -> None:
    """What the process apart finds reaches the user as it was said, its traceback --debug; nothing is written."""
    with pytest.raises(
        DataError, match=r"^unknown data set 'mnistt'; the nearest .*: mnist, kmnist, emnist$"
    ) as refusal:
        prepare.prepare("mnistt", data_dir=tmp_path / "data")
    assert "catalog.py" in str(refusal.value.__cause__)
    assert not (tmp_path / "data").exists()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users may look into, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", folder], check=True)
    shutil.rmtree(folder)


def test_a_read_only_cache_serves_a_stranger(shared: Path, digits_dir: Path) -> None:
    """A user without an account reads what is prepared; what is not cannot be written, and the line says so."""
    probe = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import trainbox.data.prepare'], check=True)"
    stranger = next((user for user in STRANGERS if works(*user, sys.executable, "-c", probe)), None)
    if stranger is None or os.getuid() != 0:
        pytest.skip("only root can run our Python as another user")
    shutil.copytree(digits_dir / "digits", shared / "digits")
    for path in (shared, *shared.rglob("*")):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    status, output = run("digits", shared, *stranger)
    assert status == 0
    assert json.loads(output)["checksums"] == prepare.prepare("digits", data_dir=digits_dir).checksums
    assert run("mnist", shared, *stranger) == (
        4,
        f"data set mnist is not prepared in {shared}, and nothing can be written there (Permission denied): prepare it "
        "as a user who may, or name another --data-dir",
    )


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """With 128 KiB left the digits do not fit: one line, and nothing on the disk counts as prepared."""
    if not works("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", str(tmp_path)):
        pytest.skip("this machine lets us mount nothing")
    small = f'mount -t tmpfs -o size=128k none {tmp_path} && "$@"; status=$?; ls -A {tmp_path}/digits >&2; exit $status'
    process = start("digits", tmp_path, "unshare", "--map-root-user", "--mount", "sh", "-c", small, "sh")
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output.strip()) == (
        4,
        f"data set digits is not prepared: the disk of {tmp_path} is full (0 MiB free): make room or name "
        "another --data-dir",
    )
    assert "1.0.0" not in errors.splitlines()


def test_a_process_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preparation that is killed, or ends in a way that was not foreseen, is told with its last words."""
    python = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    for script, ending in [
        ("kill -9 $$", "its process was killed, perhaps for want of memory (it said nothing)"),
        ("echo first; echo last words; exit 7", "its process ended with status 7 (last words)"),
    ]:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        assert refused("digits", tmp_path) == f"data set digits could not be prepared: {ending}"
    python.unlink()
    assert refused("digits", tmp_path) == (
        f"data set digits could not be prepared: {python} cannot be started (No such file or directory)"
    )
