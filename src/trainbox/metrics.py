"""One writer of a run's numbers: `metrics.jsonl`, and TensorBoard events beside it.

A line is one flat, strict JSON object: `step`, `epoch`, `seconds`, then `part/name` scalars, floats with every bit, and
null for what is not finite. Events go through TensorBoard's own writer of records, not `tf.summary`, which cannot purge
the steps that a resumed run repeats.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainbox import lines

FILE = "metrics.jsonl"
_EVENT_FILE = re.compile(r"events\.out\.tfevents\.([0-9]+)\.")
_PARTS = ("train/", "validation/", "test/")


class MetricWriter:
    """Appends to the metrics of a run folder, from `step` (the last step that the run has kept) on.

    Removed first: later lines, which a killed process wrote and the resumed one will write again, a torn last line, and
    the line of an epoch after the first `epochs_done`, though it be of this step: a checkpoint can lie between the last
    step of an epoch and its line.

    Raises:
        RunFailedError: the file is damaged, or cannot be written.
    """

    def __init__(self, run_dir: Path, *, step: int, epochs_done: int, tensorboard: bool) -> None:
        self._path = run_dir / FILE
        self._file = lines.open_after(self._path, step, unless=closing_after(epochs_done))
        self._events: _EventFile | None = None
        try:
            if tensorboard:
                self._events = _EventFile(run_dir / "tensorboard", step=step)
        except OSError as error:
            raise lines.cannot_write(error, self._path) from error

    def write(self, *, step: int, epoch: int, seconds: float, scalars: Mapping[str, float | None]) -> None:
        """One line and its events, with the operating system when this returns. None is a reading that is missing.

        `step` counts from 1 over the whole run; `seconds` is the run's own time.

        Raises:
            RunFailedError: it cannot be written; what was written before is whole.
        """
        values = {name: None if value is None else float(value) for name, value in scalars.items()}
        line = {"step": step, "epoch": epoch, "seconds": float(seconds), **values}
        strict = {name: value if value is None or math.isfinite(value) else None for name, value in line.items()}
        path = self._path
        try:
            lines.append(self._file, json.dumps(strict, allow_nan=False).encode() + b"\n")
            if self._events is not None:
                path = self._events.path
                self._events.write(step, values)
        except OSError as error:
            raise lines.cannot_write(error, path) from error

    def close(self) -> None:
        """Release the files; all lines are written already."""
        os.close(self._file)
        if self._events is not None:
            self._events.close()


def read(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics, without one that is torn at the end; none where there is no file.

    Raises:
        RunFailedError: a line before the last one is damaged, or the file cannot be read.
    """
    return [line for _, line in lines.read(run_dir / FILE)]


def closing_after(epochs_done: int) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a line is that of an epoch which is not among the first `epochs_done`."""
    return lambda line: "train/loss" in line and line["epoch"] > epochs_done


def digest(run_dir: Path) -> str:
    """SHA-256, in hexadecimal, over the logged losses and metrics of a run, each with its step and epoch.

    Times and what depends on them are left out, and so is all that is not of training, validation or test: two runs
    that computed the same have the same digest, however fast they were.

    Raises:
        RunFailedError: as `read`.
    """
    counted = [
        {name: value for name, value in line.items() if name in ("step", "epoch") or _counts(name)}
        for line in read(run_dir)
        # A line of an interval alone would make the digest depend on how often there is one.
        if any(map(_counts, line))
    ]
    return hashlib.sha256("".join(json.dumps(line, sort_keys=True) + "\n" for line in counted).encode()).hexdigest()


def _counts(name: str) -> bool:
    return name.startswith(_PARTS) and not name.endswith(("seconds", "_per_second"))


class _EventFile:
    """One TensorBoard event file. A folder has one for each start of the run, and their names sort in that order."""

    def __init__(self, folder: Path, *, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(exist_ok=True)
        # Numbered and not timed, as usual: the node that goes on with a run may have a clock behind the last one's.
        earlier = (_EVENT_FILE.match(path.name) for path in folder.iterdir())
        number = max((int(match[1]) for match in earlier if match), default=-1) + 1
        self.path = folder / f"events.out.tfevents.{number:010d}.{socket.gethostname()}"
        self._file = self.path.open("xb")
        self._records = RecordWriter(self._file)
        self._record(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # TensorBoard forgets what earlier files say of this step and of later ones.
        restart = SessionLog(status=SessionLog.START)
        self._record(Event(wall_time=time.time(), step=step + 1, session_log=restart))
        self._file.flush()

    def write(self, step: int, scalars: Mapping[str, float | None]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        now = time.time()
        for name, value in scalars.items():
            if value is not None:
                self._record(Event(wall_time=now, step=step, summary=scalar_pb(name, value)))
        self._file.flush()

    def close(self) -> None:
        # After a failed write what is still in the buffer fails again; it was told already.
        with suppress(OSError):
            self._file.close()

    def _record(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
