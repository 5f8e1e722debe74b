"""What killed preparations left in a data folder: found, told from the work of live ones, and removed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainbox.data.holdings import size_bytes
from trainbox.data.preparation import UNFINISHED, WORK_FOLDER, remove
from trainbox.errors import DataError

_WORK = re.compile(r"(?P<key>.+)\.[0-9a-f]{32}")
# A split that is being decoded, as `arrays` names it.
_DECODING = ".*-arrays/*/.*." + "[0-9a-f]" * 32
# What no lock tells of, as of TFDS used alone, is dead when nothing in it has changed for so long.
IDLE_SECONDS = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A folder of a preparation, its bytes, and whether that preparation may be running still."""

    path: Path
    size_bytes: int
    live: bool


def clean(data_dir: Path, *, dry_run: bool = False) -> list[Leftover]:
    """Remove what dead preparations left in `data_dir`, unless `dry_run`; tell of it, and of what live ones work on.

    Raises DataError if a leftover cannot be removed.
    """
    told = [_settle(path, key, dry_run=dry_run) for path, key in _work(data_dir)]
    for path in _strangers(data_dir):
        leftover = Leftover(path=path, size_bytes=size_bytes(path), live=_busy(path))
        if not dry_run and not leftover.live:
            shutil.rmtree(path, ignore_errors=True)
        told.append(leftover)
    kept = [] if dry_run else [one.path for one in told if not one.live and one.path.exists()]
    if kept:
        raise DataError(f"cannot remove {kept[0]}, which a killed preparation left: run this as the user who owns it")
    return told


def _work(data_dir: Path) -> Iterator[tuple[Path, str]]:
    """The folders that trainbox prepares in, each with the key of its lock."""
    for path in sorted((data_dir / WORK_FOLDER).glob("*")):
        if (match := _WORK.fullmatch(path.name)) and path.is_dir():
            yield path, match["key"]


def _settle(path: Path, key: str, *, dry_run: bool) -> Leftover:
    """Whoever prepares holds the lock until the end, so what lies there while we hold it is dead."""
    lock = _open(path.parent / f"{key}.lock")
    try:
        live = _held_by_another(lock, path)
        size = _with_downloads(path)
        if not live and not dry_run:
            remove(path)
        return Leftover(path=path, size_bytes=size, live=live)
    finally:
        if lock is not None:
            os.close(lock)


def _open(file: Path) -> int | None:
    try:
        return os.open(file, os.O_RDWR)
    except OSError:
        return None


def _held_by_another(lock: int | None, path: Path) -> bool:
    if lock is None:
        return _busy(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return _busy(path)
    return False


def _with_downloads(path: Path) -> int:
    """Bytes of the work and of the downloads that it noted and did not end."""
    notes = path / UNFINISHED
    noted = notes.read_text().splitlines() if notes.is_file() else []
    return size_bytes(path) + sum(size_bytes(Path(line)) for line in noted)


def _strangers(data_dir: Path) -> list[Path]:
    """What no lock tells of: what TFDS alone leaves, unfinished sets and downloads that no work has noted; and arrays
    that were being decoded, or whose set is gone.
    """
    noted = {
        line
        for path, _ in _work(data_dir)
        if (path / UNFINISHED).is_file()
        for line in (path / UNFINISHED).read_text().splitlines()
    }
    patterns = [f"{folder}/{name}" for folder in ("[!.]*", "[!.]*/[!.]*") for name in ("incomplete.*_*", _DECODING)]
    found = {path for pattern in (*patterns, "downloads/**/*.tmp.*") for path in data_dir.glob(pattern)}
    arrays = {path for folder in ("[!.]*", "[!.]*/[!.]*") for path in data_dir.glob(f"{folder}/.*-arrays")}
    orphans = {path for path in arrays if not (path.parent / path.name[1:].removesuffix("-arrays")).is_dir()}
    found = {path for path in found if not orphans & set(path.parents)} | orphans
    return [path for path in sorted(found) if path.is_dir() and str(path) not in noted]


def _busy(path: Path) -> bool:
    """Whether anything in the folder has changed within `IDLE_SECONDS`."""
    newest = path.stat().st_mtime
    for folder, _, files in os.walk(path):
        for file in (folder, *(os.path.join(folder, name) for name in files)):
            try:
                newest = max(newest, os.lstat(file).st_mtime)
            except OSError:
                return True  # it vanished: somebody works here
    return time.time() - newest < IDLE_SECONDS
