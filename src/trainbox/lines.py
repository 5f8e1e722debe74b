"""Files of JSON lines that grow with a run: appended whole, mended after a kill, cut back to the step of a resume.

A line is one JSON object with the integer `step`. Nothing is synced to the disk line by line, but all before there is a
checkpoint (`sync`): what a machine that dies takes with it comes after that, and is written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainbox.errors import RunFailedError
from trainbox.run_folder import atomic_write


def read(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line as stored and as read, up to the last one if that is torn; none where there is no file.

    Raises:
        RunFailedError: a line before the last one is damaged, or the file cannot be read.
    """
    try:
        stored = path.read_bytes().split(b"\n") if path.exists() else []
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
    for number, text in enumerate(stored, start=1):
        if not text.strip():
            continue
        line = _parsed(text)
        if line is not None:
            yield text, line
        elif any(rest.strip() for rest in stored[number:]):
            raise RunFailedError(f"{path} is damaged at line {number} ({text[:40]!r}): mend or delete this line")


def until(path: Path, step: int, *, unless: Callable[[dict[str, Any]], bool] = lambda line: False) -> bytes:
    """The lines up to `step`, as stored, but for those of which `unless` holds.

    Raises:
        RunFailedError: as `read`.
    """
    return b"".join(text + b"\n" for text, line in read(path) if line["step"] <= step and not unless(line))


def open_after(path: Path, step: int, *, unless: Callable[[dict[str, Any]], bool] = lambda line: False) -> int:
    """A descriptor to append to, after removing all but what `until` gives; so a torn last line goes too.

    Removed are lines that a killed process wrote and the resumed one will write again.

    Raises:
        RunFailedError: the file is damaged, or cannot be written.
    """
    kept = until(path, step, unless=unless)
    try:
        if path.exists() and path.read_bytes() != kept:
            atomic_write(path, kept)
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise cannot_write(error, path) from error


def append(file: int, lines: bytes) -> None:
    """All of the lines or, when the disk is full, nothing of them. Raises OSError."""
    size = os.fstat(file).st_size
    try:
        written = 0
        while written < len(lines):
            written += os.write(file, lines[written:])
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise


def sync(path: Path) -> None:
    """Bring to the disk what was appended to a file, if there is one.

    Raises:
        RunFailedError: the disk is full or failed.
    """
    try:
        file = os.open(path, os.O_WRONLY)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(error, path) from error
    try:
        os.fsync(file)
    except OSError as error:
        raise cannot_write(error, path) from error
    finally:
        os.close(file)


def cannot_write(error: OSError, path: Path) -> RunFailedError:
    """The error of a file that ran out of room, or may not be written."""
    return RunFailedError(
        f"cannot write {error.filename or path} ({error.strerror}): make room or make it writable, then say the same "
        "command again to go on"
    )


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("step"), int) else None
