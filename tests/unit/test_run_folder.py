"""The folder of one run: its name, its lock, and files that are whole or not there."""

import contextlib
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from trainbox import run_folder
from trainbox.config import RunConfig
from trainbox.errors import RunFailedError, TrainboxError, UsageError
from trainbox.run_folder import RunFolder, atomic_write

NOW = datetime(2025, 1, 2, 3, 4, 5)
# Root may write anywhere, so a refusal has to be seen as somebody else.
NOBODY = 65534


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ({}, {}, "digits-cnn-20250102-030405"),
        ({"dataset": "emnist/balanced", "model": "mlp"}, {}, "emnist-balanced-mlp-20250102-030405"),
        ({"model": "/home/kim/my net.py:build"}, {}, "digits-my-net.build-20250102-030405"),
        ({"dataset": "../" * 100}, {}, "cnn-20250102-030405"),
        ({}, {"SLURM_JOB_ID": "4711"}, "slurm-4711"),
        ({}, {"SLURM_JOB_ID": "4713", "SLURM_ARRAY_JOB_ID": "4711", "SLURM_ARRAY_TASK_ID": "2"}, "slurm-4711_2"),
        ({}, {"SLURM_JOB_ID": "", "SLURM_ARRAY_JOB_ID": "1"}, "digits-cnn-20250102-030405"),
        ({}, {"SLURM_JOB_ID": "../../etc"}, "slurm-..-..-etc"),
        ({"run": "first"}, {"SLURM_JOB_ID": "4711"}, "first"),
        ({"run": "größer, 2"}, {}, "größer, 2"),
    ],
)
def test_a_run_is_named(config, environ, expected):
    """By --run, else by the Slurm job, else by data set, model and time."""
    assert run_folder.name(RunConfig(**config), environ, NOW) == expected


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("../first", "--run is '../first'; give a name, and the folder for it with --output-dir"),
        ("/tmp/first", "--run is '/tmp/first'; give a name, and the folder for it with --output-dir"),
        ("..", "--run is '..'; give a name, and the folder for it with --output-dir"),
        ("-x", "--run is '-x'; a name begins with a letter or digit and has no line breaks"),
        (".hidden", "--run is '.hidden'; a name begins with a letter or digit and has no line breaks"),
        ("a\nb", r"--run is 'a\nb'; a name begins with a letter or digit and has no line breaks"),
        ("a ", "--run is 'a '; a name begins with a letter or digit and has no line breaks"),
        ("ü" * 101, "--run has 202 bytes; give a name of at most 200"),
    ],
)
def test_a_name_that_would_leave_the_output_folder_is_refused(run, message):
    """So is one that a shell or a log would trip over."""
    with pytest.raises(UsageError) as error:
        run_folder.name(RunConfig(run=run), {}, NOW)
    assert str(error.value) == message


def test_a_folder_is_made_with_its_parents(tmp_path):
    """The output folder need not exist yet, and nothing is left in it by the try."""
    folder = RunFolder.create(tmp_path / "a" / "b", "first")
    assert folder.path == tmp_path / "a" / "b" / "first"
    assert list(folder.path.iterdir()) == []


def test_a_folder_into_which_no_run_has_started_is_removed(tmp_path):
    """With what was made for it, and not if it was there before, holds anything, or another job is in it."""
    made, before = RunFolder.create(tmp_path / "new", "first"), RunFolder.create(tmp_path / "old", "first")
    with made.lock(), RunFolder.create(tmp_path / "old", "first").lock():
        (made.path / "train.log").touch()
        with pytest.raises(UsageError), RunFolder(path=made.path, made=made.made).lock():
            pass
        assert made.path.exists()
    assert (tmp_path / "new").exists() is False
    assert before.path.exists()
    begun = RunFolder.create(tmp_path / "new", "first")
    with begun.lock():
        begun.write("config.json", b"{}")
    assert {path.name for path in begun.path.iterdir()} == {".lock", "config.json"}


@pytest.mark.parametrize(
    ("name", "message"), [("", "--fork is ''; give a name, and the"), ("-x", "--fork is '-x'; a name")]
)
def test_the_name_of_a_fork_is_one_too(name, message):
    """It is told by its own option."""
    with pytest.raises(UsageError) as refusal:
        run_folder.checked(name, option="--fork")
    assert str(refusal.value).startswith(message)


def test_a_file_in_the_way_is_named(tmp_path):
    """A run's folder cannot be a file."""
    (tmp_path / "first").write_text("")
    with pytest.raises(UsageError) as error:
        RunFolder.create(tmp_path, "first")
    assert str(error.value) == (
        f"cannot write {tmp_path / 'first'}: a file is in the way; move it, or choose another --run"
    )


def refused_to_nobody(work) -> str:
    """Code and line of the error that `work` raises in a process that owns nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            work()
        except TrainboxError as error:
            os.write(writer, f"{error.exit_code} {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as said:
        return said.read()


@pytest.fixture
def closed_folder():
    """A folder that nobody but its owner may write."""
    path = Path(f"/var/tmp/trainbox-{os.getpid()}")
    path.mkdir(mode=0o755)
    if os.getuid() != 0:
        path.chmod(0o555)
    yield path
    path.chmod(0o755)
    path.rmdir()


def test_an_output_folder_that_may_not_be_written_is_a_usage_error(closed_folder):
    """It is found before any expensive work."""
    said = refused_to_nobody(lambda: RunFolder.create(closed_folder, "first"))
    assert said == (
        f"2 cannot write {closed_folder}/first: Permission denied; mount or choose another folder with --output-dir"
    )


def test_a_run_folder_of_somebody_else_is_a_usage_error(closed_folder):
    """It exists, and still cannot be written."""
    said = refused_to_nobody(lambda: RunFolder.create(closed_folder.parent, closed_folder.name))
    assert said == (
        f"2 cannot write {closed_folder}: Permission denied; mount or choose another folder with --output-dir"
    )


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o077, 0o600), (0o022, 0o644)])
def test_permissions_follow_the_umask(umask, mode, tmp_path):
    """Results are readable by whoever the caller wants to read them."""
    before = os.umask(umask)
    try:
        atomic_write(tmp_path / "file", b"data")
        folder = RunFolder.create(tmp_path, "first")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    assert folder.path.stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_write_replaces_the_file_and_leaves_nothing_else(tmp_path):
    """The temporary name is gone afterwards."""
    folder = RunFolder(path=tmp_path)
    folder.write("file", b"old, and longer")
    folder.write("file", b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"new"}


def test_a_full_disk_keeps_the_old_file(tmp_path):
    """The write fails in one line, and neither the file nor the folder has changed."""
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with small_files(1000), pytest.raises(RunFailedError) as error:
        atomic_write(path, b"x" * 100_000)
    assert str(error.value) == f"cannot write {path}: File too large"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"file": b"old"}


@contextlib.contextmanager
def small_files(limit: int):
    """No file may grow beyond `limit` bytes in this process; the kernel refuses as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize(
    ("number", "kind", "ending"),
    [
        (errno.ENOSPC, RunFailedError, "No space left on device; free some space and say the same command again"),
        (errno.EDQUOT, RunFailedError, "Disk quota exceeded; free some space and say the same command again"),
        (errno.EIO, RunFailedError, "Input/output error"),
        (errno.EROFS, UsageError, "Read-only file system; mount or choose another folder with --output-dir"),
        (errno.ENAMETOOLONG, UsageError, "File name too long; mount or choose another folder with --output-dir"),
    ],
)
def test_a_failure_says_what_to_do(number, kind, ending):
    """A place that cannot be written is a matter of words, a full or broken disk is not."""
    failure = run_folder._failure(Path("/output/first"), OSError(number, os.strerror(number)))
    assert (type(failure), str(failure)) == (kind, f"cannot write /output/first: {ending}")


def test_the_second_job_in_a_folder_is_told_of_the_first(tmp_path):
    """The line names process and host, and the folder is free again afterwards."""
    first, second = RunFolder(path=tmp_path), RunFolder(path=tmp_path)
    with first.lock():
        with pytest.raises(UsageError) as error, second.lock():
            pass
        assert str(error.value) == (
            f"{tmp_path} is in use by pid {os.getpid()} on {socket.gethostname()}; wait for it, or choose another --run"
        )
    with second.lock():
        pass


HOLD = """
import sys, time
from pathlib import Path
from trainbox.run_folder import RunFolder
with RunFolder(path=Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_killed_job_holds_nothing(tmp_path):
    """SIGKILL frees the lock, and the next job removes the temporary file that it left."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        left = tmp_path / f".step-1.{holder.pid}{run_folder.TEMPORARY}"
        left.write_bytes(b"half")
        with pytest.raises(UsageError, match=re.escape(f"pid {holder.pid} on ")), RunFolder(path=tmp_path).lock():
            pass
        assert left.exists()
        holder.kill()
    with RunFolder(path=tmp_path).lock():
        assert not left.exists()


@pytest.mark.parametrize("number", sorted(run_folder.NO_LOCKS))
def test_a_file_system_without_locks_is_used_without(number, tmp_path, monkeypatch):
    """Some network file systems have none, and a run there is still a run; nothing is swept then."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = tmp_path / f".file.1{run_folder.TEMPORARY}"
    left.write_bytes(b"of another job")
    with RunFolder(path=tmp_path).lock():
        assert left.exists()


def test_another_failure_of_the_lock_is_no_other_job(tmp_path, monkeypatch):
    """A broken disk is not blamed on somebody else."""

    def refuse(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(RunFailedError) as error, RunFolder(path=tmp_path).lock():
        pass
    assert str(error.value) == f"cannot write {tmp_path}/.lock: Input/output error"


@pytest.fixture
def runs(tmp_path) -> Path:
    """An output folder with two runs and one folder that is none."""
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "config.json").write_text("{}")
    (tmp_path / "other").mkdir()
    return tmp_path


def test_a_run_is_found_by_name_and_by_path(runs, monkeypatch):
    """A name is looked up in the output folder first."""
    assert run_folder.find("first", runs) == runs / "first"
    assert run_folder.find(str(runs / "first"), Path("output")) == runs / "first"
    monkeypatch.chdir(runs)
    assert run_folder.find("./second", Path("output")) == Path("second")


@pytest.mark.parametrize(
    ("run", "ending"),
    [
        ("frist", "; did you mean first?"),
        ("other", "; it has first, second"),
        ("", "; it has first, second"),
        ("a\0b", "; it has first, second"),
        ("x" * 5000, "; it has first, second"),
    ],
)
def test_an_unknown_run_is_refused(run, ending, runs):
    """The line names the nearest run, or those there are."""
    with pytest.raises(UsageError) as error:
        run_folder.find(run, runs)
    assert str(error.value).startswith("no run '")
    assert str(error.value).endswith(f"in {runs}{ending}")


def test_an_output_folder_without_runs_says_so(tmp_path):
    """It may not exist at all."""
    with pytest.raises(UsageError) as error:
        run_folder.find("first", tmp_path / "nothing")
    assert str(error.value) == f"no run 'first' in {tmp_path / 'nothing'}; it has no runs yet"
