"""A split decoded once: plain .npy files beside the prepared set, which every later start maps instead of decoding.

A mapped row is read from the disk when it is first used, and its memory belongs to the system's cache of files, shared
by all processes: so a set may be larger than the memory. Where they cannot be written, rows are decoded into memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainbox.data import prepared, reading
from trainbox.data.prepared import DatasetInfo

Array = npt.NDArray[Any]

FORMAT = 2
_ABOUT = "arrays.json"
_INPUTS, _LABELS = "inputs.npy", "labels.npy"


def load(info: DatasetInfo, split: str, *, say: Callable[[str], None] = lambda text: None) -> tuple[Array, Array]:
    """Inputs [rows, …] and labels [rows] of `split` in the types of `info.features`, in the order of the files.

    Both are mapped and may be read alone: what is written into them goes nowhere. `say` gets a line where rows are
    decoded again, or are to be at every start. Initialises TensorFlow's devices if it decodes. Errors as
    `reading.read`.
    """
    folder = place(info) / split
    try:
        found = _mapped(folder)
    except _DamagedError as error:
        say(f"the decoded rows in {folder} are damaged ({error}): decoding them again")
        shutil.rmtree(folder, ignore_errors=True)
        found = None
    if found is not None:
        return found
    try:
        _build(info, split, folder)
        return _mapped(folder) or reading.read(info, split)
    except _DamagedError:
        return reading.read(info, split)
    except OSError as error:
        say(
            f"note: split {split!r} is decoded at every start, because its rows cannot be kept in {folder} "
            f"({error.strerror})"
        )
        return reading.read(info, split)


def place(info: DatasetInfo) -> Path:
    """The folder of the arrays of a set: one for the same files and the same way of decoding them."""
    decides = [FORMAT, sorted(info.checksums.items()), dataclasses.asdict(info.features)]
    key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    return info.path.parent / f".{info.version}-arrays" / key[:16]


class _DamagedError(Exception):
    """The arrays are not as they were written."""


def _mapped(folder: Path) -> tuple[Array, Array] | None:
    """The arrays in `folder`, or None if there are none. Raises _DamagedError."""
    try:
        about = json.loads((folder / _ABOUT).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _DamagedError(f"{_ABOUT} cannot be read") from error
    try:
        small = sum(size for size, _ in about.values()) <= prepared.VERIFIED_BYTES
        for name, (size, digest) in about.items():
            if (folder / name).stat().st_size != size:
                raise _DamagedError(f"{name} has another size")
            if small and _sha256(folder / name) != digest:
                raise _DamagedError(f"{name} has another SHA-256")
        # Copy on write, because TensorFlow takes no memory that may not be written.
        inputs, labels = (np.load(folder / name, mmap_mode="c") for name in (_INPUTS, _LABELS))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _DamagedError(str(error)) from error
    return inputs, labels


def _build(info: DatasetInfo, split: str, folder: Path) -> None:
    """Decode the split a batch at a time and give the finished folder its name. Raises OSError, and as `reading`."""
    work = folder.parent / f".{split}.{uuid.uuid4().hex}"
    work.mkdir(parents=True)
    try:
        rows, features = info.splits.get(split, 0), info.features
        with (
            _writer(work / _INPUTS, features.input_type, (rows, *info.input_shape)) as put_inputs,
            _writer(work / _LABELS, features.label_type, (rows,)) as put_labels,
        ):
            for inputs, labels in reading.batches(info, split):
                put_inputs(inputs)
                put_labels(labels)
        about = {name: ((work / name).stat().st_size, _sha256(work / name)) for name in (_INPUTS, _LABELS)}
        (work / _ABOUT).write_text(json.dumps(about))
        with contextlib.suppress(FileExistsError):  # another process was as quick, with the same rows
            _rename(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _rename(work: Path, folder: Path) -> None:
    try:
        work.rename(folder)
    except OSError as error:
        if folder.is_dir():
            raise FileExistsError(str(folder)) from error
        raise


@contextlib.contextmanager
def _writer(file: Path, kind: Any, shape: tuple[int, ...]) -> Any:
    """A function that appends rows to a new .npy file; a full disk is an OSError, which it is not in mapped memory."""
    with file.open("wb") as stream:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)  # pads to 64 bytes, as TensorFlow wants its memory
        yield lambda rows: stream.write(np.ascontiguousarray(rows, kind).data)
        stream.flush()
        os.fsync(stream.fileno())


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
