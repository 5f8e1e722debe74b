"""What may go wrong while a set is prepared, and what its last step does."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainbox.data import failures, preparation
from trainbox.data.names import parse
from trainbox.data.preparation import Request
from trainbox.errors import DataError

OPEN = SimpleNamespace(MANUAL_DOWNLOAD_INSTRUCTIONS=None)
BY_HAND = SimpleNamespace(MANUAL_DOWNLOAD_INSTRUCTIONS="Ask\n  them.")


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A wish for emnist/letters:3.1.0 in a fresh folder."""
    return Request(asked="emnist/letters", name=parse("emnist/letters:3.1.0"), data_dir=tmp_path)


class NonMatchingChecksumError(Exception):
    """By the name of TFDS's own."""


@pytest.mark.parametrize(
    ("error", "builder", "line"),
    [
        (DataError("as it is"), OPEN, "as it is"),
        (
            ModuleNotFoundError("No module named 'importlib_resources'", name="importlib_resources"),
            OPEN,
            "data set emnist/letters needs the Python package 'importlib_resources', which is not installed: "
            "install it",
        ),
        (
            OSError("Not enough disk space. Needed: 9.00 TiB (download: 1.00 TiB, generated: 8.00 TiB)"),
            OPEN,
            "data set emnist/letters is not prepared: the disk of DIR is full (FREE MiB free): make room or name "
            "another --data-dir",
        ),
        (
            OSError(errno.EROFS, "Read-only file system"),
            None,
            "data set emnist/letters is not prepared in DIR, and nothing can be written there (Read-only file system): "
            "prepare it as a user who may, or name another --data-dir",
        ),
        (
            NonMatchingChecksumError("said\nanew"),
            OPEN,
            "data set emnist/letters could not be prepared: said anew",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "a.rar"),
            BY_HAND,
            "data set emnist/letters needs files fetched by hand into DIR/downloads/manual (FileNotFoundError: "
            "[Errno 2] No such file or directory: 'a.rar'): Ask them.",
        ),
        (
            KeyError("x\ny"),
            OPEN,
            "data set emnist/letters could not be prepared in DIR/emnist/letters/3.1.0 (KeyError: 'x\\ny'): see "
            "--debug",
        ),
    ],
)
def test_a_failure_is_one_line(error: Exception, builder: Any, line: str, request_: Request) -> None:
    """Each failure says what, where, why and what to do, in one line."""
    found = str(failures.explained(error, request=request_, builder=builder))
    free = found.partition("(")[2].partition(" MiB")[0]
    assert found == line.replace("DIR", str(request_.data_dir)).replace("FREE", free)


def test_the_first_to_end_counts(request_: Request) -> None:
    """A finished set gets its place with its note on the default configuration; one that comes second gives way."""
    for content in ("first", "second"):
        folder = request_.data_dir / ".trainbox" / content
        made = folder / "emnist" / "letters" / "3.1.0"
        made.mkdir(parents=True)
        for file in ("dataset_info.json", "features.json"):
            (made / file).write_text(content)
        (folder / "emnist" / ".config").mkdir()
        (folder / "emnist" / ".config" / "metadata.json").write_text("{}")
        assert preparation.publish(request_, folder) == request_.wanted
    assert (request_.wanted / "features.json").read_text() == "first"
    assert (request_.data_dir / "emnist" / ".config" / "metadata.json").read_text() == "{}"


@pytest.mark.parametrize("block", [lambda path: path.touch(), lambda path: (path / "x").mkdir(parents=True)])
def test_something_in_the_way_is_told(block: Callable[[Path], Any], request_: Request) -> None:
    """What is no prepared set is not overwritten."""
    (request_.data_dir / "work" / "emnist" / "letters" / "3.1.0").mkdir(parents=True)
    request_.wanted.parent.mkdir(parents=True)
    block(request_.wanted)
    with pytest.raises(DataError) as refusal:
        preparation.publish(request_, request_.data_dir / "work")
    assert str(refusal.value) == (
        f"data set emnist/letters cannot be put into {request_.wanted}: something that is no prepared data set is in "
        "the way; remove it"
    )


def test_without_locks_each_prepares_for_itself(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no locks is no error, and nothing of others is cleaned up then; another failure is."""

    def refuse(number: int) -> Callable[..., None]:
        def flock(*_: int) -> None:
            raise OSError(number, os.strerror(number))

        return flock

    with preparation.exclusive(request_) as alone:
        assert alone is True
    monkeypatch.setattr(fcntl, "flock", refuse(errno.ENOSYS))
    with preparation.exclusive(request_) as alone:
        assert alone is False
    monkeypatch.setattr(fcntl, "flock", refuse(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), preparation.exclusive(request_):
        pass
