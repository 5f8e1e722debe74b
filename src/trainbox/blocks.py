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


def train_block(step: BatchStep) -> Callable[[Batch, Any], tuple[Any, Any, Any]]:
    """A compiled function that takes a block of batches and the loss-scale state, float32 [2].

    It returns the steps' statistics, float32 [steps, statistics], whether each was taken, bool [steps], and the new
    loss-scale state. Any number of steps is served by one trace.
    """

    @tf.function(autograph=False, input_signature=[step.signature, tf.TensorSpec([2], tf.float32)])
    def run(block: Batch, scale_state: Any) -> tuple[Any, Any, Any]:
        steps = tf.shape(block.indices)[0]
        statistics = tf.TensorArray(tf.float32, size=steps, element_shape=[len(step.statistics)])
        taken = tf.TensorArray(tf.bool, size=steps, element_shape=[])

        def body(i: Any, statistics: Any, taken: Any, scale_state: Any) -> tuple[Any, ...]:
            values, was_taken, scale_state = step(Batch(*(part[i] for part in block)), scale_state)
            return i + 1, statistics.write(i, values), taken.write(i, was_taken), scale_state

        _, statistics, taken, scale_state = tf.while_loop(
            lambda i, *_: i < steps, body, (tf.constant(0), statistics, taken, scale_state)
        )
        return statistics.stack(), taken.stack(), scale_state

    return run


def evaluation_block(step: BatchStep) -> Callable[[Batch], Any]:
    """A compiled function from a block of batches to its statistics, float32 [steps, statistics]."""

    @tf.function(autograph=False, input_signature=[step.signature])
    def run(block: Batch) -> Any:
        steps = tf.shape(block.indices)[0]
        statistics = tf.TensorArray(tf.float32, size=steps, element_shape=[len(step.statistics)])

        def body(i: Any, statistics: Any) -> tuple[Any, Any]:
            return i + 1, statistics.write(i, step(Batch(*(part[i] for part in block))))

        return tf.while_loop(lambda i, _: i < steps, body, (tf.constant(0), statistics))[1].stack()

    return run


@dataclass
class Pace:
    """The number of steps in the next block, so that control comes back to Python about four times a second."""

    steps: int = 1
    measured: bool = False

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
