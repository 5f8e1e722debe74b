"""Prepares one data set and ends: `python -m trainbox.data.preparation NAME DATA_DIR VIEW [--offline]`.

A process of its own, because TFDS encodes images with TensorFlow, after which devices can no longer be configured,
prints as it goes and keeps its threads. It answers on standard output, one JSON object a line behind a record separator
(RFC 7464): `say` to tell the user, then `prepared` with the folder or `error` with the line for the user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox.data import catalog, downloads, failures, folders, own, prepared
from trainbox.data.features import choose
from trainbox.data.names import DatasetName
from trainbox.data.view import View
from trainbox.errors import DataError

SEPARATOR = "\x1e"
WORK_FOLDER = ".trainbox"  # in the data folder: locks, and what is being prepared
UNFINISHED = "unfinished-downloads"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to prepare and where: `asked` is the user's word, `name` the same with every part known."""

    asked: str
    name: DatasetName
    data_dir: Path

    @property
    def wanted(self) -> Path:
        """The folder that the set will have."""
        return self.data_dir / self.name.name / (self.name.config or "") / str(self.name.version)

    @property
    def key(self) -> str:
        """What its lock and its work are called by: the same for all versions of a configuration."""
        return "-".join(part for part in (self.name.name, self.name.config) if part)


def main(asked: str, data_dir: str, view: str, *options: str) -> int:
    """Prepare and answer; the exit status is 0, or that of the error."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        # TFDS leaves temporary folders behind. They go before the answer, after which the parent ends this process.
        with tempfile.TemporaryDirectory(prefix="trainbox-") as tempfile.tempdir:
            path = prepare(asked, Path(data_dir), View.from_json(view), offline="--offline" in options)
    except DataError as error:
        answer(error=str(error), traceback=traceback.format_exc())
        return error.exit_code
    answer(prepared=str(path))
    return 0


def answer(**message: str) -> None:
    """Send one message, whole: what libraries print may come before or after it."""
    os.write(1, f"\n{SEPARATOR}{json.dumps(message)}\n".encode())


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the parent closes its end, or dies
    if tempfile.tempdir:
        shutil.rmtree(tempfile.tempdir, ignore_errors=True)
    os._exit(1)


def prepare(asked: str, data_dir: Path, view: View, *, offline: bool) -> Path:
    """The folder of the data set `asked`, prepared here unless it is already, or another process comes first."""
    builder_class, name = catalog.found(asked)
    if path := prepared.find(name, data_dir):
        return path
    request = Request(asked=asked, name=name, data_dir=data_dir)
    choose(catalog.build(builder_class, name, catalog.NOWHERE).info, view)
    with exclusive(request) as alone:
        # Another process was quicker, or only TFDS could tell which configuration was meant.
        if path := prepared.find(name, data_dir):
            return path
        answer(say=f"preparing data set {asked} in {request.wanted}")
        _tell_of_others(asked)
        if alone:
            remove_leftovers(request)
        with staging(request) as folder:
            make(catalog.build(builder_class, name, folder), request, folder, offline=offline)
            return publish(request, folder)


def _tell_of_others(asked: str) -> None:
    if asked.startswith(folders.PREFIX) and (others := folders.scan(asked).others):
        answer(
            say=f"note: {len(others)} files in {asked} are no images by their names and are left out, as {others[0]}"
        )


@contextlib.contextmanager
def exclusive(request: Request) -> Iterator[bool]:
    """One process at a time prepares a data set; the others wait here until it ends, however it ends.

    False where the file system has no locks: each prepares for itself, and the first to end is the one that counts.
    """
    try:
        (request.data_dir / WORK_FOLDER).mkdir(parents=True, exist_ok=True)
        lock = os.open(request.data_dir / WORK_FOLDER / f"{request.key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise failures.unwritable(request.asked, request.data_dir, error) from error
    try:
        yield _locked(lock, request)
    finally:
        os.close(lock)


def _locked(lock: int, request: Request) -> bool:
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            answer(say=f"another process prepares data set {request.asked}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        return False
    return True


@contextlib.contextmanager
def staging(request: Request) -> Iterator[Path]:
    """A folder on the disk of the data folder, removed at the end with the downloads that did not end."""
    folder = request.data_dir / WORK_FOLDER / f"{request.key}.{uuid.uuid4().hex}"
    try:
        folder.mkdir()
        yield folder
    except OSError as error:
        raise failures.explained(error, request=request, builder=None) from error
    finally:
        remove(folder)


def remove_leftovers(request: Request) -> None:
    """Remove what killed preparations of this data set left; only for the process that holds the lock."""
    for folder in (request.data_dir / WORK_FOLDER).glob(f"{request.key}.{'[0-9a-f]' * 32}"):
        remove(folder)


def remove(folder: Path) -> None:
    """Remove the work of a preparation that has ended, and the downloads that it did not end."""
    downloads.remove_unfinished(folder / UNFINISHED)
    shutil.rmtree(folder, ignore_errors=True)


def make(builder: Any, request: Request, folder: Path, *, offline: bool) -> None:
    """Let TFDS fetch and write the data set into `folder`, then record the SHA-256 of its files there."""
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    downloads.bound(offline=offline, unfinished=folder / UNFINISHED)
    _write_the_same_bytes()
    originals = request.data_dir / "downloads"
    manual = originals / "manual"
    if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and not (manual.is_dir() and any(manual.iterdir())):
        raise failures.by_hand(request, builder)
    try:
        builder.download_and_prepare(
            download_dir=originals,
            download_config=tfds.download.DownloadConfig(
                # The user's own builder need not have registered any.
                manual_dir=manual,
                force_checksums_validation=not own.is_file(request.asked),
                try_download_gcs=False,
            ),
        )
        splits = builder.info.splits.values()
        prepared.record(Path(builder.data_dir), [Path(file).name for split in splits for file in split.filenames])
        if own.is_file(request.asked):
            own.record(Path(builder.data_dir), request.asked)
    except Exception as error:  # a builder may raise anything
        raise failures.explained(error, request=request, builder=builder) from error


def _write_the_same_bytes() -> None:
    """Protobuf orders the features of an example anew in every process: the files' SHA-256 would differ each time."""
    from tensorflow_datasets.core.example_serializer import ExampleSerializer

    def serialize_example(self: Any, example: Any) -> Any:
        return self.get_tf_example(example).SerializeToString(deterministic=True)

    ExampleSerializer.serialize_example = serialize_example


def publish(request: Request, folder: Path) -> Path:
    """Give the finished data set its final name, in one step, so that no half of it is ever found."""
    made = Request(asked=request.asked, name=request.name, data_dir=folder).wanted
    request.wanted.parent.mkdir(parents=True, exist_ok=True)
    default = Path(request.name.name) / ".config"
    if (folder / default).is_dir():
        shutil.copytree(folder / default, request.data_dir / default, dirs_exist_ok=True)
    try:
        made.rename(request.wanted)
    except OSError as error:
        if path := prepared.find(request.name, request.data_dir):
            return path
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise DataError(
            f"data set {request.asked} cannot be put into {request.wanted}: something that is no prepared data set is "
            "in the way; remove it"
        ) from error
    return request.wanted


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    os._exit(status)  # without waiting for the threads of downloads that hang
