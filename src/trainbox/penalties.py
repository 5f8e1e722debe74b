"""Regularizers in a batch that has spare rows and is computed in shards.

Keras adds a weight penalty in every call and averages an activity penalty over every row it sees. Here the weight
penalty is added once to the total, and an activity penalty counts the real rows only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf


def regularized(model: keras.Model) -> list[Any]:
    """The trainable variables that have a weight regularizer."""
    return [variable for variable in model.trainable_variables if variable.regularizer is not None]


def weight_penalty(model: keras.Model, values: list[Any]) -> Any:
    """Sum of the weight regularizers: float32 scalar. `values` are those of `model.trainable_variables`, in order."""
    terms = [
        variable.regularizer(value)
        for variable, value in zip(model.trainable_variables, values, strict=True)
        if variable.regularizer is not None
    ]
    return tf.add_n([tf.cast(term, tf.float32) for term in terms])


def add_penalty(statistics: Any, penalty: Any) -> Any:
    """Statistics whose loss, a sum over examples, includes the weight penalty, as Keras reports it."""
    return tf.concat([[statistics[0] + penalty * statistics[-1]], statistics[1:]], axis=0)


@contextmanager
def activity_penalties_masked(model: keras.Model, weights: Any) -> Iterator[None]:
    """While open, each activity regularizer of `model` sees zeros for the rows whose weight (float [rows]) is 0.

    Keras then divides by the number of rows; the factor put in here makes that the number of real ones. An output whose
    first dimension is not the batch is left as it is.
    """
    layers = [layer for layer in model._flatten_layers() if layer.activity_regularizer is not None]
    originals = [layer.activity_regularizer for layer in layers]
    rows = weights.shape[0]
    real = tf.cast(weights > 0, tf.float32)
    factor = tf.math.divide_no_nan(float(rows), tf.reduce_sum(real))

    def masked(regularizer: Any) -> Any:
        def penalty(output: Any) -> Any:
            if output.shape.rank == 0 or output.shape[0] != rows:
                return regularizer(output)
            mask = tf.reshape(real, [rows] + [1] * (output.shape.rank - 1))
            value = regularizer(output * tf.cast(mask, output.dtype))
            return value * tf.cast(factor, value.dtype)

        return penalty

    for layer, regularizer in zip(layers, originals, strict=True):
        layer.activity_regularizer = masked(regularizer)
    try:
        yield
    finally:
        for layer, regularizer in zip(layers, originals, strict=True):
            layer.activity_regularizer = regularizer
