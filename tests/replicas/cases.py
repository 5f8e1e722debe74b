"""Small trainings whose right result is known or is that of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainbox import changes
from trainbox.normalisation import Normalisation
from trainbox.objective import Objective, classification
from trainbox.practice import Practice

layers = keras.layers
BOTH = ("fast", "reproducible")
EVERY = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, an optimizer, rows and a batch; trained on the first of the rows, as many as each of `counts` says.

    `words` are options of a run, which then gives the optimizer. `practice` and `normalisation` are those of `Learner`.
    """

    model: Callable[[], keras.Model]
    rows: Callable[[], tuple[np.ndarray, np.ndarray]]
    batch: int
    counts: tuple[int, ...] = ()
    optimizer: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.Adam(1e-3)
    words: Mapping[str, Any] | None = None
    objective: Callable[[], Objective] = lambda: classification(from_logits=True)
    epochs: int = 2
    modes: tuple[str, ...] = ("fast",)
    layouts: tuple[int, ...] = (1, 2)
    precision: str = "float32"
    practice: Practice | None = None
    normalisation: Normalisation | None = None


def digits(count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """The first `count` images of the bundled digits' kind: noise with a pattern for each class, 8 × 8."""

    def rows() -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(5)
        labels = generator.integers(0, 10, count).astype(np.int32)
        patterns = generator.normal(size=(10, 8, 8, 1))
        return (patterns[labels] + generator.normal(size=(count, 8, 8, 1))).astype(np.float32), labels

    return rows


def clothes(count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Images of the shape of Fashion-MNIST: bytes, 28 × 28."""

    def rows() -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(7)
        labels = generator.integers(0, 10, count).astype(np.int32)
        patterns = generator.integers(0, 128, (10, 28, 28, 1))
        return (patterns[labels] + generator.integers(0, 128, (count, 28, 28, 1))).astype(np.uint8), labels

    return rows


def planted(count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """The same with one row whose gradient no precision can hold."""

    def rows() -> tuple[np.ndarray, np.ndarray]:
        images, labels = digits(count)()
        images[count // 2] = 3e38
        return images, labels

    return rows


def ramp(count: int) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Inputs 1 and targets 1 … count."""
    return lambda: (np.ones((count, 1), np.float32), np.arange(1, count + 1, dtype=np.float32)[:, None])


def cnn(
    shape: tuple[int, ...] = (8, 8, 1), *, middle: Callable[[], list[Any]] = list, **dense: Any
) -> Callable[[], keras.Model]:
    """The tutorial's network, with `middle` before its hidden layer."""
    return lambda: keras.Sequential(
        [
            keras.Input(shape),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            *middle(),
            layers.Dense(16, activation="relu", **dense),
            layers.Dense(10),
        ]
    )


def zero() -> keras.Model:
    """A model that answers 0."""
    return keras.Sequential([keras.Input((1,)), layers.Dense(1, kernel_initializer="zeros")])


def normalized() -> list[Any]:
    """Layers whose state or randomness belongs to a shard."""
    return [layers.BatchNormalization(), layers.Dropout(0.3), layers.LayerNormalization(), layers.Dropout(0.3)]


def squares() -> Objective:
    """Squared and absolute error, one value an example."""
    return Objective(
        loss=keras.losses.MeanSquaredError(reduction="none"),
        metrics={"mae": lambda labels, outputs: tf.abs(labels - outputs)[:, 0]},
    )


def cast_to(dtype: str, scale: float = 1.0) -> Callable[[], keras.Model]:
    """The tutorial's network computing in `dtype`, its outputs multiplied by `scale`."""

    def build() -> keras.Model:
        policy = keras.DTypePolicy(f"mixed_{dtype}")
        return keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                layers.Conv2D(8, 3, activation="relu", dtype=policy),
                layers.Flatten(dtype=policy),
                layers.Dense(10, dtype=policy),
                layers.Rescaling(scale, dtype=policy),
            ]
        )

    return build


def sgd(**arguments: Any) -> Callable[[], keras.optimizers.Optimizer]:
    """Plain SGD, in which nothing hides the scale of a gradient."""
    return lambda: keras.optimizers.SGD(0.05, **arguments)


CASES: dict[str, Case] = {
    "cnn-16": Case(model=cnn(), rows=digits(1797), batch=16, counts=(5, 17, 33, 65, 1797), layouts=EVERY),
    "cnn-7": Case(model=cnn(), rows=digits(65), batch=7, counts=(17, 65), layouts=(1, 2, 3)),
    "ramp-9": Case(
        model=zero,
        rows=ramp(9),
        batch=8,
        layouts=(1, 2, 4),
        optimizer=lambda: keras.optimizers.SGD(0.0),
        objective=squares,
    ),
    "ramp-8": Case(model=zero, rows=ramp(8), batch=8, optimizer=lambda: keras.optimizers.SGD(0.0), objective=squares),
    "ramp-learns": Case(model=zero, rows=ramp(9), batch=8, optimizer=sgd(momentum=0.9), objective=squares),
    "momentum": Case(model=cnn(), rows=digits(65), batch=16, optimizer=sgd(momentum=0.9)),
    "clip-norm": Case(model=cnn(), rows=digits(65), batch=16, optimizer=sgd(clipnorm=0.1), layouts=(1, 4)),
    "global-clip-norm": Case(
        model=cnn(), rows=digits(65), batch=16, optimizer=sgd(global_clipnorm=0.1), layouts=(1, 4)
    ),
    "average": Case(
        model=cnn(), rows=digits(65), batch=16, words={"optimizer": "sgd", "learning_rate": 0.05, "ema_momentum": 0.9}
    ),
    "weight-decay": Case(model=cnn(), rows=digits(65), batch=16, optimizer=lambda: keras.optimizers.AdamW(1e-3)),
    "l2": Case(model=cnn(kernel_regularizer="l2"), rows=digits(65), batch=16, optimizer=sgd()),
    "activity": Case(model=cnn(activity_regularizer="l2"), rows=digits(65), batch=16, optimizer=sgd()),
    "batch-norm": Case(
        model=lambda: keras.Sequential(
            [keras.Input((8, 8, 1)), layers.Flatten(), layers.Dense(8), layers.BatchNormalization(), layers.Dense(10)]
        ),
        rows=digits(17),
        batch=8,
        layouts=(1, 2, 4),
    ),
    "normalized": Case(model=cnn(middle=normalized), rows=digits(65), batch=24, modes=BOTH, layouts=EVERY),
    "frozen": Case(
        model=cnn(middle=lambda: [layers.Dense(8, trainable=False)]),
        rows=digits(33),
        batch=16,
        modes=BOTH,
        layouts=(1, 3, 4),
    ),
    "clothes": Case(
        model=cnn((28, 28, 1), middle=normalized, kernel_regularizer="l2", activity_regularizer="l2"),
        rows=clothes(257),
        batch=64,
        words={
            "optimizer": "sgd",
            "learning_rate": 0.02,
            "momentum": 0.9,
            "weight_decay": 0.01,
            "global_clip_norm": 0.5,
            "ema_momentum": 0.9,
        },
        modes=(),
        practice=Practice(
            changes=changes.parse("flip,flip-vertical,crop:2,rotate:15,colour:0.3"),
            mixup=0.4,
            class_weights=(0.5, 2.0, *[1.0] * 8),
        ),
        normalisation=Normalisation(input_shape=(28, 28, 1), mean=(0.3,), variance=(0.05,)),
    ),
    "bfloat16": Case(
        model=cast_to("bfloat16"), rows=digits(65), batch=16, modes=BOTH, layouts=(1, 4), precision="bfloat16"
    ),
    "float16": Case(
        model=cast_to("float16"), rows=digits(65), batch=16, modes=BOTH, layouts=(1, 4), precision="float16"
    ),
    "float16-overflow": Case(
        model=cast_to("float16", scale=3000.0),
        rows=digits(33),
        batch=16,
        modes=BOTH,
        layouts=(1, 4),
        precision="float16",
    ),
    "float16-planted": Case(
        model=cast_to("float16"),
        rows=planted(33),
        batch=16,
        modes=("reproducible",),
        layouts=(1, 4),
        precision="float16",
    ),
}
