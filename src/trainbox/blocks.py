"""Blocks of steps inside one compiled function, and how long a block may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

from trainbox.learner import Batch

BLOCK_SECONDS = 0.25


class BatchStep(Protocol):
    """A step on one global batch, with the names of what it reports and the specs of a block of batches."""

    statistics: tuple[str, ...]
    signature: Batch

    def __call__(self, *args: Any) -> Any: ...


class TrainingStep(BatchStep, Protocol):
    """A step that trains; it also tells whether it gives fingerprints, and prepares in `begin` for a block of steps."""

    traced: bool

    def begin(self) -> None: ...


def train_block(step: TrainingStep) -> Callable[[Batch, Any], tuple[Any, ...]]:
    """A compiled function that takes a block of batches and the loss-scale state, float32 [2].

    It returns the steps' statistics, float32 [steps, statistics], whether each was taken, bool [steps], the new
    loss-scale state and, of traced steps, their fingerprints, int64 [steps]. Any number of steps is served by one
    compilation.
    """

    @tf.function(autograph=False, input_signature=[step.signature, tf.TensorSpec([2], tf.float32)])
    def run(block: Batch, scale_state: Any) -> tuple[Any, ...]:
        step.begin()
        steps = tf.shape(block.indices)[0]
        arrays = [
            tf.TensorArray(tf.float32, size=steps, element_shape=[len(step.statistics)]),
            tf.TensorArray(tf.bool, size=steps, element_shape=[]),
        ]
        if step.traced:
            arrays.append(tf.TensorArray(tf.int64, size=steps, element_shape=[]))

        def body(i: Any, scale_state: Any, arrays: list[Any]) -> tuple[Any, ...]:
            values, taken, scale_state, *prints = step(block.cut(i), scale_state)
            given = (values, taken, *prints)
            return i + 1, scale_state, [array.write(i, value) for array, value in zip(arrays, given, strict=True)]

        _, scale_state, arrays = tf.while_loop(lambda i, *_: i < steps, body, (tf.constant(0), scale_state, arrays))
        statistics, taken, *prints = [array.stack() for array in arrays]
        return statistics, taken, scale_state, *prints

    return run


def evaluation_block(step: BatchStep) -> Callable[[Batch], Any]:
    """A compiled function from a block of batches to its statistics, float32 [steps, statistics]."""

    @tf.function(autograph=False, input_signature=[step.signature])
    def run(block: Batch) -> Any:
        steps = tf.shape(block.indices)[0]
        statistics = tf.TensorArray(tf.float32, size=steps, element_shape=[len(step.statistics)])

        def body(i: Any, statistics: Any) -> tuple[Any, Any]:
            return i + 1, statistics.write(i, step(block.cut(i)))

        # One batch after the other: nothing else keeps apart steps that change no variable, and ten at once take ten
        # times the memory of one, more than training takes.
        start = (tf.constant(0), statistics)
        return tf.while_loop(lambda i, _: i < steps, body, start, parallel_iterations=1)[1].stack()

    return run


@dataclass
class Pace:
    """The number of steps in the next block, so that control comes back to Python about four times a second.

    Several workers `agree` on it, because their clocks differ and a step in which not all take part never ends.
    """

    agree: Callable[[int], int] = int
    steps: int = 1
    measured: bool = False

    def next(self, left: int) -> int:
        """The steps of the next block, of `left` that are to be done."""
        return self.agree(min(self.steps, left))

    def note(self, *, steps: int, seconds: float) -> None:
        """Learn from a block that took `seconds`; the first one, which includes compilation, teaches nothing."""
        if self.measured:
            self.steps = max(1, min(int(BLOCK_SECONDS * steps / max(seconds, 1e-9)), 8 * self.steps))
        self.measured = True


@dataclass
class Meter:
    """Examples per second since it was made; a block that was compiling counts only while there is no other."""

    rate: float = 0.0
    _examples: int = 0
    _seconds: float = 0.0

    def note(self, *, examples: int, seconds: float, compiling: bool) -> None:
        """Add a block of `examples` real rows that took `seconds`."""
        if not compiling:
            self._examples += examples
            self._seconds += seconds
        self.rate = self._examples / self._seconds if self._seconds else examples / seconds
