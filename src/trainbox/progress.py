"""Where a run is: everything besides the variables that decides the next step, the next line and the next decision."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Kept in every checkpoint, and changed by the loop alone.

    `epochs_done` counts epochs whose evaluation, line and decisions are made; an epoch whose last step is done and that
    is not counted yet is closed first after a resume. `skipped` steps overflowed in float16; `rate` is in examples per
    second. `best` is the lowest loss of any epoch, `best_saved` that of an epoch with a checkpoint, the one of
    `best_step`. Sums are over examples, in the order of the step's statistics. Epochs from `first_epoch` on have the
    steps of now, the first of them after `first_step`; before it, those of a run from which this one began.
    """

    step: int = 0
    skipped: int = 0
    epochs_done: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    scale_state: list[float] = field(default_factory=lambda: [1.0, 0.0])
    best: float | None = None
    best_saved: float | None = None
    best_step: int | None = None
    epochs_since_best: int = 0
    stopped_early: bool = False
    epoch_sums: list[float] = field(default_factory=list)
    interval_sums: list[float] = field(default_factory=list)
    first_step: int = 0
    first_epoch: int = 0

    def position(self, epoch: int, steps_per_epoch: int) -> int:
        """How many steps of `epoch`, counted from 0, are done."""
        return self.step - self.first_step - (epoch - self.first_epoch) * steps_per_epoch

    def shown(self, steps_per_epoch: int) -> int:
        """The step that a display shows: as if all epochs had had the steps of now."""
        return self.step - self.first_step + self.first_epoch * steps_per_epoch

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; floats keep every bit."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """The progress that `as_dict` described; keys of other versions are ignored."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})
