"""Checkpoints: everything that decides the next step, in one file that carries its own checksum.

A checkpoint is a safetensors file: every variable of model and optimizer by its position, and in its metadata the state
of the run (JSON) and the SHA-256 over both. It is written under a temporary name, fsynced and renamed, so a reader sees
a whole file or none; what was damaged later is found when it is read, and the one before it is used.
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

FORMAT = "trainbox-1"
_NAME = re.compile(r"step-(\d+)\.safetensors")

Write = Callable[[Path, bytes], None]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint: `arrays` by variable in the order of `variables`, `state` as it was saved."""

    path: Path
    step: int
    arrays: tuple[np.ndarray, ...]
    state: dict[str, Any]


def variables(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """All variables of model and optimizer, in the model's own order (paths can repeat, positions cannot)."""
    return [*model.variables, *optimizer.variables]


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
        RunFailedError: the file is damaged, or of another format.
    """
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = tuple(file.get_tensor(key) for key in sorted(file.keys()))
    except (SafetensorError, OSError, ValueError) as error:
        raise RunFailedError(f"checkpoint {path} is damaged ({error}); delete it to go on without it") from error
    if metadata.get("format") != FORMAT:
        raise RunFailedError(
            f"checkpoint {path} has format {metadata.get('format')!r}, not {FORMAT!r}; use the version that wrote it"
        )
    text = metadata.get("state", "")
    if metadata.get("sha256") != _checksum(text, arrays):
        raise RunFailedError(f"checkpoint {path} is damaged (its checksum differs); delete it to go on without it")
    return Checkpoint(path=path, step=step_of(path), arrays=arrays, state=json.loads(text))


def latest(directory: Path, *, tell: Callable[[str], None]) -> Checkpoint | None:
    """The newest good checkpoint; damaged ones are named through `tell`. `None` if the run never saved any.

    Raises:
        RunFailedError: there are checkpoints and all are damaged; training must not start from zero silently.
    """
    found = paths(directory)
    for path in found:
        try:
            return read(path)
        except RunFailedError as error:
            tell(f"{error}; trying the one before it")
    if found:
        raise RunFailedError(
            f"all {len(found)} checkpoints in {directory} are damaged; delete them to start the run again from step 0"
        )
    return None


def restore(checkpoint: Checkpoint, held: Sequence[keras.Variable]) -> None:
    """Assign a checkpoint's arrays to `held`, the result of `variables` for the same model and optimizer.

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
    return hashlib.sha256(f"{text}{digest(arrays)}".encode()).hexdigest()
