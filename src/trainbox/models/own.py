"""A user's own model: what their function returns, built and held to the data set's shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from trainbox import plugin
from trainbox.errors import UsageError


def build(
    reference: plugin.Reference,
    *,
    input_shape: tuple[int, ...],
    num_classes: int,
    offered: Mapping[str, object],
) -> keras.Model:
    """The model of the function, with its weights created. `offered` is what it may ask for besides the two shapes.

    Raises:
        UsageError: the function fails or returns no model, or the model does not map rows to `num_classes` values.
    """
    model = plugin.call(reference, {"input_shape": input_shape, "num_classes": num_classes, **offered})
    if not isinstance(model, keras.Model):
        kind = f"{type(model).__module__}.{type(model).__name__}" if model is not None else "None"
        raise UsageError(f"{reference} returned {kind}; it must return a keras.Model of Keras {keras.__version__}")
    output = _outputs(model, input_shape, reference)
    if not keras.ops.is_tensor(output) or tuple(output.shape[1:]) != (num_classes,):
        received = f"shape (batch, {_axes(output.shape[1:])})" if keras.ops.is_tensor(output) else type(output).__name__
        raise UsageError(
            f"{reference}: for rows of shape ({_axes(input_shape)}) the model's output is {received}; "
            f"it must be (batch, {num_classes})"
        )
    if not model.trainable_variables:
        raise UsageError(f"{reference}: the model has no trainable weights; there is nothing to train")
    return model


def _outputs(model: keras.Model, input_shape: tuple[int, ...], reference: plugin.Reference) -> Any:
    """What the model gives for two rows of zeros; the call creates its weights if it has none yet.

    It is a real call, not a symbolic one, because a subclassed model may need real shapes to create its weights.
    """
    try:
        return model(np.zeros((2, *input_shape), np.float32), training=False)
    except Exception as error:
        raise UsageError(
            f"{reference}: the model cannot take float32 rows of shape (batch, {_axes(input_shape)}): "
            f"{plugin.one_line(error)}"
        ) from error


def _axes(shape: Iterable[int]) -> str:
    return ", ".join(str(size) for size in shape)
