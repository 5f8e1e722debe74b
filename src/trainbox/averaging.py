"""A moving average of the weights, which is what is validated, tested and exported.

Keras's own (`use_ema`) fails under several replicas. This one follows its rule: after the first step it is the weights,
then each step takes it (1 - momentum) of the way to them. A step that is skipped leaves it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class WeightAverage:
    """The average of each trainable weight of a model, in their order; to be made in the strategy's scope."""

    momentum: float
    variables: tuple[keras.Variable, ...]

    @classmethod
    def of(cls, model: keras.Model, *, momentum: float) -> WeightAverage:
        """An average that begins at the model's weights."""
        return cls(
            momentum=momentum,
            variables=tuple(
                keras.Variable(weight.numpy(), dtype=weight.dtype, trainable=False, name=f"{weight.name}_average")
                for weight in model.trainable_variables
            ),
        )

    def following(self, weights: Sequence[Any], steps_taken: Any) -> list[Any]:
        """Its next values, after the optimizer's step number `steps_taken` (from 1) has left `weights`."""
        momentum = tf.where(tf.equal(steps_taken, 1), 0.0, self.momentum)
        return [
            tf.cast(momentum, weight.dtype) * tf.convert_to_tensor(average.value)
            + tf.cast(1.0 - momentum, weight.dtype) * weight
            for average, weight in zip(self.variables, weights, strict=True)
        ]

    def give_to(self, model: keras.Model) -> None:
        """Put the average in the place of the model's weights, to export it."""
        for weight, average in zip(model.trainable_variables, self.variables, strict=True):
            weight.assign(average.numpy())
