"""When a checkpoint is due between epochs."""

from __future__ import annotations

from trainbox.cadence import Cadence
from trainbox.config import LARGEST


def test_by_steps_it_is_every_nth_step_of_the_run():
    """Wherever the run was resumed, and however many checkpoints there were meanwhile."""
    cadence = Cadence(steps=5)
    assert [step for step in range(1, 17) if cadence.due(step)] == [5, 10, 15]
    assert [cadence.steps_left(step) for step in (0, 3, 4, 5, 11)] == [5, 2, 1, 5, 4]


def test_by_minutes_it_is_after_that_time_without_one():
    """Counted from the last checkpoint, whatever that was for."""
    now = [100.0]
    cadence = Cadence(minutes=2, clock=lambda: now[0])
    due = []
    for now[0] in (219.9, 220.0, 339.9, 340.0):
        due.append(cadence.due(1))
        if due[-1]:
            cadence.saved()
    assert due == [False, True, False, True]


def test_unless_asked_for_it_never_is():
    """A block is then bounded by the epoch alone."""
    cadence = Cadence(clock=iter([0.0, 1e9]).__next__)
    assert not cadence.due(1)
    assert cadence.steps_left(7) == LARGEST
