"""The convolutional network of TensorFlow's multi-GPU tutorial."""

from __future__ import annotations

import keras
from keras import layers


def build(*, input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Images float32 [batch, *input_shape] to logits float32 [batch, num_classes]."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            # The loss needs the full range of float32 whatever the precision of the rest.
            layers.Dense(num_classes, dtype="float32"),
        ],
        name="cnn",
    )
