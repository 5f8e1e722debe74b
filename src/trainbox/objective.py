"""What is minimised and what is reported: one value for each example, so that every sum over a batch is exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

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


def classification(*, from_logits: bool) -> Objective:
    """Sparse categorical cross-entropy and accuracy, for int labels [n] and outputs [n, classes]."""
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits, reduction="none")

    def accuracy(labels: Any, outputs: Any) -> Any:
        return tf.cast(tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), labels), tf.float32)

    return Objective(loss=entropy, metrics={"accuracy": accuracy})
