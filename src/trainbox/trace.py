"""`trace.jsonl`: what every step of a `--reproducible` run came to, so that the first step that differs can be named.

A line has `step`, `loss` (the mean over the step's examples, with every bit; null if it is not finite) and `bits`, the
step's fingerprint as 16 hexadecimal digits.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trainbox import lines

FILE = "trace.jsonl"
_MASK = 2**64 - 1


class TraceWriter:
    """Appends to the trace of a run folder, from `step` (the last step that the run has kept) on.

    Raises:
        RunFailedError: the file is damaged, or cannot be written.
    """

    def __init__(self, run_dir: Path, *, step: int) -> None:
        self._path = run_dir / FILE
        self._file = lines.open_after(self._path, step)

    def write(self, *, first_step: int, statistics: Iterable[Sequence[float]], bits: Iterable[int]) -> None:
        """The lines of a block of steps: of each its statistics (sums; loss first, weight last) and fingerprint.

        `first_step` counts from 1 over the whole run.

        Raises:
            RunFailedError: it cannot be written; what was written before is whole.
        """
        steps = zip(statistics, bits, strict=True)
        text = "".join(_line(step, row, value) for step, (row, value) in enumerate(steps, start=first_step))
        try:
            lines.append(self._file, text.encode())
        except OSError as error:
            raise lines.cannot_write(error, self._path) from error

    def close(self) -> None:
        """Release the file; all lines are written already."""
        os.close(self._file)


def read(run_dir: Path) -> list[dict[str, Any]]:
    """The lines of a run's trace, without one that is torn at the end; none where there is no file.

    Raises:
        RunFailedError: a line before the last one is damaged, or the file cannot be read.
    """
    return [line for _, line in lines.read(run_dir / FILE)]


def _line(step: int, statistics: Sequence[float], bits: int) -> str:
    loss = statistics[0] / statistics[-1]
    line = {"step": step, "loss": loss if math.isfinite(loss) else None, "bits": f"{bits & _MASK:016x}"}
    return json.dumps(line, allow_nan=False) + "\n"
