"""Checkpoints: everything that decides the next step, in one file that carries its own checksum.

A checkpoint is a safetensors file: every variable of model and optimizer by its position, and in its metadata its
format, the state of the run (JSON) and the SHA-256 over all three. It is written under a temporary name, fsynced and
renamed, so a reader sees a whole file or none; what was damaged later is found when it is read, and the one before it
is used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from trainbox.errors import RunFailedError, UsageError

FORMAT = "trainbox-2"
_FORMATS = re.compile(r"trainbox-\d+")
_NAME = re.compile(r"step-(\d+)\.safetensors")

Write = Callable[[Path, bytes], None]


class DamagedError(RunFailedError):
    """A checkpoint is not what was written: another one can be used in its place."""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint: `arrays` in the order in which they were saved, `state` as it was saved."""

    path: Path
    step: int
    arrays: tuple[np.ndarray, ...]
    state: dict[str, Any]


def snapshot(held: Iterable[keras.Variable]) -> list[np.ndarray]:
    """The values of variables, in arrays of their own: no later step changes them."""
    # On the CPU an array can be a view of the memory that TensorFlow updates.
    return [np.require(variable.value.numpy(), requirements="O") for variable in held]


def digest(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 over the bytes of arrays in order, with their types and shapes."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype.name}{list(array.shape)}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def save(directory: Path, *, step: int, arrays: Sequence[np.ndarray], state: dict[str, Any], write: Write) -> Path:
    """Write the checkpoint of `step` through `write`, which must be atomic, and return its path."""
    path = directory / f"step-{step:010d}.safetensors"
    text = json.dumps(state, sort_keys=True)
    tensors = {f"{position:06d}": np.asarray(array, order="C") for position, array in enumerate(arrays)}
    metadata = {"format": FORMAT, "state": text, "sha256": _checksum(text, arrays)}
    directory.mkdir(exist_ok=True)
    write(path, to_bytes(tensors, metadata=metadata))
    return path


def paths(directory: Path) -> list[Path]:
    """The checkpoint files of a run, newest step first; empty if there are none."""
    found = [path for path in directory.glob("step-*.safetensors") if _NAME.fullmatch(path.name) and path.is_file()]
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step in a checkpoint's file name."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


def read(path: Path) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises:
        DamagedError: the file is not what was written.
        UsageError: it is of another version of trainbox.
        RunFailedError: it may not be read.
    """
    try:
        path.open("rb").close()
    except OSError as error:
        raise RunFailedError(
            f"cannot read checkpoint {path} ({error.strerror}): make it readable, then say the command again"
        ) from error
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = tuple(file.get_tensor(key) for key in sorted(file.keys()))
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    text, written = metadata.get("state", ""), metadata.get("format", "")
    intact = metadata.get("sha256") == _checksum(text, arrays)
    # The checksum is over this version's format: where it is right, only the name of the format is damaged.
    if not intact and written != FORMAT and _FORMATS.fullmatch(written):
        raise UsageError(f"checkpoint {path} has format {written!r}, not {FORMAT!r}; use the version that wrote it")
    if not intact or written != FORMAT:
        raise _damaged(path, "its checksum differs")
    return Checkpoint(path=path, step=step_of(path), arrays=arrays, state=json.loads(text))


def latest(directory: Path, *, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint; damaged ones are named through `tell`. `None` if the run never saved any.

    Only damage is passed over: what is passed over is deleted when the run has gone on (`discard_after`).

    Raises:
        RunFailedError: all that are there are damaged (training must not start from zero silently), or one may not be
            read.
        UsageError: one is of another version of trainbox.
    """
    found = paths(directory)
    for path in found:
        try:
            return read(path)
        except DamagedError as error:
            tell(f"{error}; trying the one before it")
    if found:
        raise RunFailedError(
            f"all {len(found)} checkpoints in {directory} are damaged; delete them to start the run again from step 0"
        )
    return None


def restore(checkpoint: Checkpoint, held: Sequence[keras.Variable]) -> None:
    """Assign a checkpoint's arrays to `held`, the variables of the same model and optimizer in the same order.

    Raises:
        UsageError: the model or optimizer has other variables than the one that was saved.
    """
    if len(held) != len(checkpoint.arrays):
        raise UsageError(
            f"{checkpoint.path} holds {len(checkpoint.arrays)} variables and the model with its optimizer has "
            f"{len(held)}; resume with the model and options that the run began with, or name another --run"
        )
    for variable, array in zip(held, checkpoint.arrays, strict=True):
        if tuple(variable.shape) != array.shape:
            raise UsageError(
                f"variable {variable.path} has shape {tuple(variable.shape)} and {array.shape} in {checkpoint.path}; "
                "resume with the model that the run began with, or name another --run"
            )
    for variable, array in zip(held, checkpoint.arrays, strict=True):
        variable.value.assign(array)


def prune(directory: Path, *, keep: int, best_step: int | None) -> None:
    """Delete all but the newest `keep` checkpoints and that of `best_step`."""
    for path in paths(directory)[keep:]:
        if step_of(path) != best_step:
            path.unlink(missing_ok=True)


def discard_after(directory: Path, step: int) -> None:
    """Delete the checkpoints of steps after `step`: those that the run passed over because they were damaged."""
    for path in paths(directory):
        if step_of(path) > step:
            path.unlink(missing_ok=True)


def _checksum(text: str, arrays: Iterable[np.ndarray]) -> str:
    return hashlib.sha256(f"{FORMAT}{text}{digest(arrays)}".encode()).hexdigest()


def _damaged(path: Path, why: str) -> DamagedError:
    return DamagedError(f"checkpoint {path} is damaged ({why}); delete it to go on without it")
