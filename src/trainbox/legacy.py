"""`multi_gpu_model` for scripts that were written for it, on Keras 3: one model, its batch cut over several devices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf


def multi_gpu_model(
    model: keras.Model, gpus: int | Sequence[int], cpu_merge: bool = True, cpu_relocation: bool = False
) -> keras.Model:
    """A model that computes with the weights of `model`, its batch cut over devices and the outputs concatenated.

    Compile it, fit it and predict with it; `model` has the trained weights, and `save` saves `model`. Batch
    normalization sees the part of one device at a time, as it did in old Keras.

    Args:
        model: a built model, with one or more inputs and outputs whose first dimension is the batch.
        gpus: how many devices, or their numbers: of GPUs, or of logical CPUs where TensorFlow sees no GPU.
        cpu_merge: concatenate on the CPU, else on the first of the devices.
        cpu_relocation: is taken and does nothing: weights stay on the device where the model was built.

    Raises:
        ValueError: there are not these devices, or none were asked for.
    """
    devices = _devices(gpus)
    warnings.warn(
        "multi_gpu_model is for old scripts: use `trainbox train`, which takes all GPUs by itself, or build and "
        "compile the model in the scope of tf.distribute.MirroredStrategy()",
        DeprecationWarning,
        stacklevel=2,
    )
    del cpu_relocation
    return MultiDeviceModel(model, devices, merge_on="CPU:0" if cpu_merge else devices[0])


class MultiDeviceModel(keras.Model):  # type: ignore[misc]
    """What `multi_gpu_model` returns; `model` is the one whose weights it uses."""

    def __init__(self, model: keras.Model, devices: Sequence[str], *, merge_on: str) -> None:
        super().__init__(name=f"{model.name}_on_{len(devices)}_devices")
        self.model = model
        self._devices, self._merge_on = list(devices), merge_on
        self.supports_jit = False  # XLA would compute all parts on one device.
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The outputs of the whole batch; rows are dealt as evenly as they can be."""
        rows = tf.shape(keras.tree.flatten(inputs)[0])[0]
        count = len(self._devices)
        parts, added = [], []
        for number, device in enumerate(self._devices):
            begin, end = rows * number // count, rows * (number + 1) // count
            with tf.device(device):
                part, losses = self._part(inputs, begin, end, training)
            parts.append(part)
            added.append(losses * tf.cast(end - begin, tf.float32))
        self.add_loss(tf.add_n(added) / tf.cast(rows, tf.float32))
        with tf.device(self._merge_on):
            return keras.tree.map_structure(lambda *outputs: tf.concat(outputs, 0), *parts)

    def save(self, filepath: Any, overwrite: bool = True, **options: Any) -> None:
        """Save the model itself, which can be loaded where there are other devices, or no trainbox."""
        self.model.save(filepath, overwrite=overwrite, **options)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """What the model itself gives: cutting the batch changes no shape."""
        return self.model.compute_output_spec(inputs, training=training)

    def _part(self, inputs: Any, begin: Any, end: Any, training: bool | None) -> tuple[Any, Any]:
        """Outputs of the rows from `begin` to `end`, and what the layers' losses come to there: float32 scalar.

        A device without rows computes nothing: the mean of no rows, in batch normalization, would be NaN.
        """
        cut = keras.tree.map_structure(lambda tensor: tensor[begin:end], inputs)

        def compute() -> tuple[Any, Any]:
            outputs = self.model(cut, training=training)
            losses = [loss for layer in self.model._flatten_layers() for loss in layer._losses]
            self.model._clear_losses()
            return outputs, tf.add_n([tf.cast(loss, tf.float32) for loss in losses]) if losses else tf.constant(0.0)

        def nothing() -> tuple[Any, Any]:
            like = [keras.KerasTensor((None, *tensor.shape[1:]), tensor.dtype) for tensor in keras.tree.flatten(cut)]
            spec = self.model.compute_output_spec(keras.tree.pack_sequence_as(cut, like), training=training)
            return keras.tree.map_structure(lambda each: tf.zeros([0, *each.shape[1:]], each.dtype), spec), 0.0

        return tf.cond(begin < end, compute, nothing)


def _devices(gpus: int | Sequence[int]) -> list[str]:
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    there = len(tf.config.list_logical_devices(kind))
    numbers = list(range(gpus)) if isinstance(gpus, int) else [int(number) for number in gpus]
    if not numbers or not set(numbers) <= set(range(there)):
        what = f"{there} {kind if kind == 'GPU' else 'logical CPU'}{'s' * (there != 1)}"
        raise ValueError(
            f"multi_gpu_model(gpus={gpus}): TensorFlow sees {what}; give a number from 1 to {there}, or a "
            f"list of numbers from 0 to {there - 1}"
        )
    return [f"{kind}:{number}" for number in numbers]
