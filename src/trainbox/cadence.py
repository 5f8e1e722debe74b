"""When a checkpoint is due between the ends of epochs: by the steps of the run, and by the minutes since the last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainbox.config import LARGEST


@dataclass(kw_only=True)
class Cadence:
    """A checkpoint every `steps` steps of the run, and after `minutes` without one; 0 is never.

    `clock` gives seconds. It is read when this is made, and whenever a checkpoint is saved.
    """

    steps: int = 0
    minutes: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self.saved()

    def steps_left(self, step: int) -> int:
        """How many steps after `step` the next checkpoint is due by steps: a block may have no more than these."""
        return self.steps - step % self.steps if self.steps else LARGEST

    def due(self, step: int) -> bool:
        """Whether a checkpoint is due after `step`, counted from 1 over the whole run."""
        by_steps = bool(self.steps) and step % self.steps == 0
        return by_steps or (self.minutes > 0 and self.clock() - self._last >= 60 * self.minutes)

    def saved(self) -> None:
        """Count the minutes from now on."""
        self._last = self.clock()
