"""What is minimised and what is reported: one value for each example, so that every sum over a batch is exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import tensorflow as tf

PerExample = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A loss and metrics; each takes (labels, outputs) of n examples and returns float32 of shape [n].

    A function that averages over the batch by itself would give the rows of a short last batch another weight, and an
    empty one a division by zero; `step` refuses it by its shape.
    """

    loss: PerExample
    metrics: Mapping[str, PerExample] = field(default_factory=dict)


class Targets(NamedTuple):
    """What training rows are to become: their `labels` [n], and what else counts in their loss.

    With `others` [n] the loss is `share` times that of the labels and the rest that of the others. `class_weights`, one
    float for each class, multiply the loss of each label.
    """

    labels: Any
    others: Any = None
    share: Any = None
    class_weights: tuple[float, ...] | None = None

    def loss(self, function: PerExample, outputs: Any) -> Any:
        """The loss of each example: float32 [n]."""
        own = self._weighted(function, self.labels, outputs)
        if self.others is None:
            return own
        return self.share * own + (1.0 - self.share) * self._weighted(function, self.others, outputs)

    @property
    def counted(self) -> Any:
        """The labels [n] that metrics are told: those of the larger share."""
        return self.labels if self.others is None else tf.where(self.share >= 0.5, self.labels, self.others)

    def _weighted(self, function: PerExample, labels: Any, outputs: Any) -> Any:
        losses = function(labels, outputs)
        if self.class_weights is None:
            return losses
        return losses * tf.gather(tf.constant(self.class_weights, tf.float32), labels)


def classification(*, from_logits: bool) -> Objective:
    """Sparse categorical cross-entropy and accuracy, for int labels [n] and outputs [n, classes]."""
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits, reduction="none")

    def accuracy(labels: Any, outputs: Any) -> Any:
        return tf.cast(tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), labels), tf.float32)

    return Objective(loss=entropy, metrics={"accuracy": accuracy})


def regression() -> Objective:
    """Squared error and absolute error, for float32 labels [n] and outputs [n, 1]."""

    def error(labels: Any, outputs: Any) -> Any:
        return tf.cast(outputs[:, 0], tf.float32) - tf.cast(labels, tf.float32)

    return Objective(
        loss=lambda labels, outputs: tf.square(error(labels, outputs)),
        metrics={"mae": lambda labels, outputs: tf.abs(error(labels, outputs))},
    )
