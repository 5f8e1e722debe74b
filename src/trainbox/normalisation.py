"""Inputs with the mean and the deviation of the training rows taken out, as in Keras's layer of that name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """(x - mean) / √variance of images, float32 [rows, *input_shape] in [0, 1], for each channel: their last axis.

    Call it with the images. The model does not hold it: whoever saves the model puts it in front.
    """

    input_shape: tuple[int, ...]
    mean: tuple[float, ...]
    variance: tuple[float, ...]

    def __call__(self, images: Any) -> Any:
        """The images, each channel with mean 0 and variance 1 over the training rows."""
        mean, deviation = np.asarray(self.mean, np.float32), np.sqrt(np.asarray(self.variance, np.float32))
        return (images - tf.constant(mean)) / tf.constant(deviation)

    def before(self, model: keras.Model) -> keras.Model:
        """A model of the same layers and variables, with a layer in front that does this."""
        layer = keras.layers.Normalization(mean=list(self.mean), variance=list(self.variance), dtype="float32")
        return keras.Sequential([keras.Input(self.input_shape), layer, model], name=f"normalised_{model.name}")
