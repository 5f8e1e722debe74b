"""The folder of one run: its name, its lock, and files that are whole or not there."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainbox import values
from trainbox.config import RunConfig
from trainbox.errors import RunFailedError, TrainboxError, UsageError

LOCK_FILE = ".lock"
LOG_FILE = "train.log"
TEMPORARY = ".trainbox-tmp"
# A file name has at most 255 bytes, and trainbox's temporary names are longer than the names they stand for.
LONGEST_NAME = 200
# What a file system without locks answers: FUSE, Lustre mounted without -o flock, some network mounts.
NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
BAD_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP}


def name(config: RunConfig, environ: Mapping[str, str], now: datetime) -> str:
    """The name of the run's folder: `--run`, else the Slurm job's, else data set, model and time.

    A requeued Slurm job and all its tasks get one name; each task of a job array has its own.

    Raises:
        UsageError: `--run` cannot be the name of a folder inside the output folder.
    """
    if config.run is not None:
        return checked(config.run, option="--run")
    job, array, task = (environ.get(f"SLURM_{key}", "").strip() for key in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"))
    if array and task:
        return _sanitized(f"slurm-{array}_{task}")
    if job:
        return _sanitized(f"slurm-{job}")
    model = re.sub(r"^(?:.*/)?([^/]+)\.py:(.+)$", r"\1.\2", config.model)
    return _sanitized(f"{config.dataset}-{model}-{now:%Y%m%d-%H%M%S}")


def checked(run: str, *, option: str) -> str:
    """The name that `option` gives to a run.

    Raises:
        UsageError: it cannot be the name of a folder inside the output folder.
    """
    if "/" in run or run in ("", ".", ".."):
        raise UsageError(f"{option} is {values.shown(run)}; give a name, and the folder for it with --output-dir")
    if run.startswith(("-", ".")) or not run.isprintable() or run != run.strip():
        raise UsageError(
            f"{option} is {values.shown(run)}; a name begins with a letter or digit and has no line breaks"
        )
    if len(os.fsencode(run)) > LONGEST_NAME:
        raise UsageError(f"{option} has {len(os.fsencode(run))} bytes; give a name of at most {LONGEST_NAME}")
    return run


def _sanitized(text: str) -> str:
    """`text` with what does not belong into a folder's name replaced; it keeps its end, where the time stands."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[-LONGEST_NAME:]


def find(run: str, output_dir: Path, *, having: str = "config.json") -> Path:
    """The folder of an existing run, known by the file `having`: a name under `output_dir`, or a path.

    Raises:
        UsageError: there is none.
    """
    candidates = [output_dir / run, Path(run)] if run.strip() and "\0" not in run else []
    for path in candidates:
        if os.path.isfile(path / having):
            return path
    known = _runs(output_dir, having)
    hint = values.did_you_mean(run, known) or ("; it has " + ", ".join(known[-3:]) if known else "; it has no runs yet")
    raise UsageError(f"no run {values.shown(run)} in {output_dir}{hint}")


def _runs(output_dir: Path, having: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted((p.parent.name for p in output_dir.glob(f"*/{having}")), key=str.casefold)
    return []


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """The folder of one run, which exists and can be written; `made` are the folders that were not there before."""

    path: Path
    made: tuple[Path, ...] = ()

    @classmethod
    def create(cls, output_dir: Path, name: str) -> RunFolder:
        """The folder `name` under `output_dir`, made if it is not there.

        Raises:
            UsageError: it cannot be made or written.
        """
        path = output_dir / name
        made = tuple(folder for folder in (path, *path.parents) if not folder.exists())
        try:
            path.mkdir(parents=True, exist_ok=True)
            # Asking the permission bits would not tell of a read-only mount, a full quota or a user mapped to nobody.
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as error:
            raise _failure(path, error) from error
        return cls(path=path, made=made)

    def write(self, name: str, data: bytes) -> None:
        """Write the file `name` of this folder; see `atomic_write`."""
        atomic_write(self.path / name, data)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other job out of this folder, while the context lasts.

        A folder that was made for a run and in which none has begun by then is removed.

        Raises:
            UsageError: another job is in it.
        """
        try:
            descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _failure(self.path / LOCK_FILE, error) from error
        try:
            held = self._take(descriptor)
            if held:
                self._sweep()
            try:
                yield
            finally:
                if held:
                    self._unmake()
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> bool:
        """Whether the lock is held; it is not where the file system has no locks."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return False
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise _failure(self.path / LOCK_FILE, error) from error
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
            raise UsageError(f"{self.path} is in use by {holder}; wait for it, or choose another --run") from error
        # The lock holds whether or not its holder's name fits the disk.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        return True

    def _sweep(self) -> None:
        """Remove the temporary files that a killed job left; nobody else writes here while the lock is held."""
        for stale in self.path.rglob(f".*{TEMPORARY}"):
            with contextlib.suppress(OSError):
                stale.unlink()

    def _unmake(self) -> None:
        """Remove the folders that were made, if nothing is in them but the lock and a log."""
        with contextlib.suppress(OSError):
            files = list(self.path.iterdir()) if self.made else []
            if {file.name for file in files} <= {LOCK_FILE, LOG_FILE}:
                for file in files:
                    file.unlink()
                for folder in self.made:
                    folder.rmdir()


def atomic_write(path: Path, data: bytes) -> None:
    """Write a file that is there whole or, whatever happens meanwhile, as it was before. Permissions follow the umask.

    Raises:
        UsageError: the place cannot be written.
        RunFailedError: the disk is full or failed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        _write_and_sync(temporary, data)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _failure(path, error) from error
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _write_and_sync(path: Path, data: bytes) -> None:
    # Not tempfile: its files are for the owner alone.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    """Bring a rename to the disk, where the file system knows how."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:  # A folder that may be written and not listed.
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    finally:
        os.close(descriptor)


def _failure(path: Path, error: OSError) -> TrainboxError:
    reason = error.strerror or str(error)
    if error.errno in BAD_PLACE:
        return UsageError(f"cannot write {path}: {reason}; mount or choose another folder with --output-dir")
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return UsageError(f"cannot write {path}: a file is in the way; move it, or choose another --run")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailedError(f"cannot write {path}: {reason}; free some space and say the same command again")
    return RunFailedError(f"cannot write {path}: {reason}")
