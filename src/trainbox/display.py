"""What a run says while it runs: a live display on a terminal, else one clean line an epoch, flushed at once.

What cannot be shown never ends a run: a closed pipe or a full disk under standard output only silences the display.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TextIO, cast

BOLD, RESET = "\x1b[1m", "\x1b[0m"
# The order in which an epoch's line names its scalars, and how; others are left to metrics.jsonl.
SHOWN = {
    "train/loss": "loss",
    "train/accuracy": "accuracy",
    "train/mae": "mae",
    "validation/loss": "val loss",
    "validation/accuracy": "val accuracy",
    "validation/mae": "val mae",
}
RATE = "train/examples_per_second"
# Columns from which on there is room for a bar.
WIDE = 90


class Display(Protocol):
    """Where a run's announcements and progress go; `step` counts over the whole run, `epoch` from 0."""

    def line(self, text: str) -> None:
        """Say one line."""

    def begin(self, *, epochs: int, steps_per_epoch: int, step: int) -> None:
        """Training begins at `step`, which is not 0 in a resumed run."""

    def update(self, *, epoch: int, step: int, scalars: Mapping[str, float | None]) -> None:
        """A block of steps is done."""

    def epoch(self, *, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> None:
        """An epoch is done and evaluated; `seconds` are those of the whole run."""

    def close(self) -> None:
        """Leave the terminal as it was; lines may still follow."""


def open_display(progress: str, *, stream: TextIO | None, environ: Mapping[str, str]) -> Display:
    """The display that `progress` ("live", "plain" or "auto") asks for on `stream`.

    Auto is live on a terminal that can move its cursor. `NO_COLOR` takes colours away; `FORCE_COLOR` gives them to
    plain lines too.
    """
    outlet = Outlet(stream)
    if stream is None or progress == "plain" or (progress == "auto" and not _moves_cursor(stream, environ)):
        forced = environ.get("FORCE_COLOR", "") not in ("", "0")
        return PlainDisplay(outlet, colors=forced and not environ.get("NO_COLOR"))
    return LiveDisplay(outlet)


def _moves_cursor(stream: TextIO, environ: Mapping[str, str]) -> bool:
    return stream.isatty() and environ.get("TERM", "") not in ("", "dumb", "unknown")


class Outlet:
    """A text stream that never fails: what its encoding lacks is escaped, and once it is broken it is silent."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text.encode(self.encoding, "backslashreplace").decode(self.encoding))
            except (OSError, ValueError) as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._give_up(error)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("no stream")
        return self._stream.fileno()

    def _give_up(self, error: Exception) -> None:
        stream, self._stream = self._stream, None
        with contextlib.suppress(OSError, ValueError):
            name = {"<stdout>": "standard output"}.get(str(stream.name), stream.name)  # type: ignore[union-attr]
            reason = getattr(error, "strerror", None) or error
            print(f"trainbox: {name} cannot be written ({reason}); the run goes on", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError, ValueError):
            # The interpreter flushes what is left at its end, and would report the same failure once more.
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())  # type: ignore[union-attr]
            os.close(nothing)


class PlainDisplay:
    """One line an epoch."""

    def __init__(self, outlet: Outlet, *, colors: bool = False) -> None:
        self._outlet = outlet
        self._colors = colors

    def line(self, text: str) -> None:
        self._say(printable(text))

    def begin(self, *, epochs: int, steps_per_epoch: int, step: int) -> None:
        pass

    def update(self, *, epoch: int, step: int, scalars: Mapping[str, float | None]) -> None:
        pass

    def epoch(self, *, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> None:
        head, rest = epoch_line(epoch=epoch, epochs=epochs, seconds=seconds, scalars=scalars)
        self._say(f"{BOLD}{head}{RESET}{rest}" if self._colors else head + rest)

    def close(self) -> None:
        pass

    def _say(self, text: str) -> None:
        self._outlet.write(text + "\n")
        self._outlet.flush()


class LiveDisplay:
    """A progress line that stays at the bottom, and above it what a plain display says."""

    def __init__(self, outlet: Outlet) -> None:
        from rich.console import Console

        # Rich asks the stream for no more than an outlet has.
        self._console = Console(
            file=cast(TextIO, outlet), force_terminal=True, highlight=False, markup=False, emoji=False
        )
        self._progress: Any = None
        self._task: Any = None
        self._epochs = self._steps_per_epoch = 0

    def line(self, text: str) -> None:
        self._console.print(printable(text), soft_wrap=True)

    def begin(self, *, epochs: int, steps_per_epoch: int, step: int) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        self.close()
        self._epochs, self._steps_per_epoch = epochs, steps_per_epoch
        wide = self._console.width >= WIDE
        # On a narrow terminal the scalars are cut, not the position or the time left.
        scalars = Column(no_wrap=True, ratio=None if wide else 1)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            *([BarColumn(bar_width=None)] if wide else []),
            TextColumn("{task.fields[scalars]}", markup=False, table_column=scalars),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
            refresh_per_second=4,
            expand=True,
            transient=True,
        )
        self._task = self._progress.add_task(
            self._where(step), total=epochs * steps_per_epoch, completed=step, scalars=""
        )
        self._progress.start()

    def update(self, *, epoch: int, step: int, scalars: Mapping[str, float | None]) -> None:
        if self._progress is None:
            return
        said = [
            f"{SHOWN[key]} {number(value)}"
            for key, value in _known(scalars, "train/loss", "train/accuracy", "train/mae")
        ]
        said += [f"{value:,.0f}/s" for _, value in _known(scalars, RATE)]
        said += gpus(scalars)
        self._progress.update(self._task, completed=step, description=self._where(step), scalars="  ".join(said))

    def epoch(self, *, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> None:
        self.line("".join(epoch_line(epoch=epoch, epochs=epochs, seconds=seconds, scalars=scalars)))

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _where(self, step: int) -> str:
        epoch = min((max(step, 1) - 1) // self._steps_per_epoch, self._epochs - 1)
        return f"epoch {epoch + 1}/{self._epochs}  step {step - epoch * self._steps_per_epoch}/{self._steps_per_epoch}"


class Tee:
    """Several displays as one: the screen, and the log file of the run."""

    def __init__(self, *displays: Display) -> None:
        self._displays = displays

    def line(self, text: str) -> None:
        for display in self._displays:
            display.line(text)

    def begin(self, *, epochs: int, steps_per_epoch: int, step: int) -> None:
        for display in self._displays:
            display.begin(epochs=epochs, steps_per_epoch=steps_per_epoch, step=step)

    def update(self, *, epoch: int, step: int, scalars: Mapping[str, float | None]) -> None:
        for display in self._displays:
            display.update(epoch=epoch, step=step, scalars=scalars)

    def epoch(self, *, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> None:
        for display in self._displays:
            display.epoch(epoch=epoch, epochs=epochs, seconds=seconds, scalars=scalars)

    def close(self) -> None:
        for display in self._displays:
            display.close()


def epoch_line(*, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> tuple[str, str]:
    """The line of an epoch, its head apart: `epoch 3/12`, `  loss 0.1234  accuracy 0.9876 …`."""
    said = [f"{SHOWN[key]} {number(value)}" for key, value in _known(scalars, *SHOWN)]
    said += [f"{value:,.0f} examples/s" for _, value in _known(scalars, RATE)]
    said += gpus(scalars)
    said.append(f"{seconds:.1f} s")
    return f"epoch {epoch + 1:{len(str(epochs))}}/{epochs}", "  " + "  ".join(said)


def gpus(scalars: Mapping[str, float | None]) -> list[str]:
    """The GPUs in short, `GPU 96 % 41.2 GiB`: how busy, of several from the least to the most, and the most memory."""
    busy, memory = (
        [value for name, value in _known(scalars, *scalars) if name.startswith("gpu/") and name.endswith(end)]
        for end in ("/utilization", "/memory_bytes")
    )
    said = []
    if busy:
        low, high = (f"{value:.0f}" for value in (min(busy), max(busy)))
        said.append(f"{low} %" if low == high else f"{low} to {high} %")
    if memory:
        said.append(f"{max(memory) / 2**30:.1f} GiB")
    return [" ".join(["GPU" if len(busy or memory) == 1 else f"{len(busy or memory)} GPUs", *said])] if said else []


def _known(scalars: Mapping[str, float | None], *names: str) -> list[tuple[str, float]]:
    """Those of the scalars that have a value, in the order of `names`."""
    return [(name, value) for name in names if (value := scalars.get(name)) is not None]


def number(value: float) -> str:
    """A loss or a metric in at most nine characters."""
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.3e}"


def printable(text: str) -> str:
    """`text` on one line, without characters that move a cursor."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in " ".join(text.splitlines()).expandtabs())
