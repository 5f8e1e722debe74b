"""The multilayer perceptron of the classic MNIST example: two hidden layers of 512 with dropout."""

from __future__ import annotations

import keras
from keras import layers


def build(*, input_shape: tuple[int, ...], num_classes: int) -> keras.Model:
    """Rows float32 [batch, *input_shape] to logits float32 [batch, num_classes]."""
    return keras.Sequential(
        [
            keras.Input(input_shape),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.2),
            # The loss needs the full range of float32 whatever the precision of the rest.
            layers.Dense(num_classes, dtype="float32"),
        ],
        name="mlp",
    )
