"""An old script with `multi_gpu_model` on four logical CPUs.

python legacy_worker.py FOLDER writes FOLDER/results.json.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import trainbox

LOADED = sorted({"tensorflow", "keras"} & set(sys.modules))

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

layers = keras.layers
IMAGES = np.random.default_rng(2).normal(size=(67, 8, 8, 1)).astype(np.float32)
LABELS = np.arange(67) % 10


def network(*inside: Any) -> keras.Model:
    """A small network with penalties and the same weights each time."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(8, 3),
            *inside,
            layers.Flatten(),
            layers.Dense(16, activation="relu", activity_regularizer="l2", kernel_regularizer="l2"),
            layers.Dense(10, activation="softmax"),
        ]
    )


def distance(first: list[Any], second: list[Any]) -> float:
    """The largest difference of two lists of arrays."""
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(first, second, strict=True))


def train(model: keras.Model) -> None:
    """Two epochs in batches of 32, the last one of three rows."""
    model.compile(optimizer=keras.optimizers.SGD(0.05), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(IMAGES, LABELS, batch_size=32, epochs=2, verbose=0, shuffle=False)


def predicted(model: keras.Model, rows: int) -> Any:
    """Outputs for the first rows, in batches of 32."""
    return model.predict(IMAGES[:rows], batch_size=32, verbose=0)


def several_inputs() -> dict[str, float]:
    """Named inputs and outputs, seven rows on three devices."""
    a, b = keras.Input((3,), name="a"), keras.Input((2,), name="b")
    model = keras.Model([a, b], {"sum": layers.Dense(2)(layers.Concatenate()([a, b])), "one": layers.Dense(1)(a)})
    rows = [np.ones((7, 3), np.float32), np.ones((7, 2), np.float32)]
    alone, cut = model.predict(rows, verbose=0), trainbox.multi_gpu_model(model, 3).predict(rows, verbose=0)
    return {name: distance([alone[name]], [cut[name]]) for name in alone}


def refused(model: keras.Model) -> dict[str, str]:
    """What is said of devices that are not there."""
    said = {}
    for gpus in (8, [0, 4], 0):
        try:
            trainbox.multi_gpu_model(model, gpus)
        except ValueError as error:
            said[str(gpus)] = str(error)
    return said


def main() -> None:
    """Do what an old script does."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    folder, found = Path(sys.argv[1]), {"loaded before it was asked for": LOADED}
    model, alone, noisy = network(), network(), network(layers.BatchNormalization(), layers.Dropout(0.2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cut = trainbox.multi_gpu_model(model, gpus=4, cpu_merge=False)
    found["warning"] = [caught[-1].category.__name__, str(caught[-1].message)]
    warnings.simplefilter("ignore")
    found["predictions"] = {
        f"{rows} rows on {gpus}": distance(
            [predicted(trainbox.multi_gpu_model(noisy, gpus), rows)], [predicted(noisy, rows)]
        )
        for gpus in (4, [0, 2], 1)
        for rows in (67, 5, 3, 1)
    }
    found["of several inputs"] = several_inputs()
    before = model.get_weights()
    for each in (cut, alone, trainbox.multi_gpu_model(noisy, [3, 1, 2, 0], cpu_relocation=True)):
        train(each)
    found["trained"] = distance(model.get_weights(), alone.get_weights())
    found["moved"] = distance(model.get_weights(), before)
    mean = noisy.layers[1].moving_mean.numpy()
    found["normalization moved and is finite"] = bool(
        mean.any() and all(np.isfinite(w).all() for w in noisy.get_weights())
    )
    cut.save(folder / "model.keras")
    again = keras.models.load_model(folder / "model.keras")
    found["saved"] = [type(again).__name__, distance(again.get_weights(), model.get_weights())]
    found["refused"] = refused(model)
    (folder / "results.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
