"""Trainings that between them pair every layer, optimizer and option with every other (a pairwise covering set)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from allpairspy import AllPairs
from cases import EVERY, Case, digits

layers = keras.layers

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.05},
    "momentum": {"optimizer": "sgd", "learning_rate": 0.05, "momentum": 0.9},
    "adam": {"optimizer": "adam"},
    "adamw": {"optimizer": "adamw"},
    "rmsprop": {"optimizer": "rmsprop"},
}
FACTORS: dict[str, dict[str, dict[str, Any]]] = {
    "optimizer": OPTIMIZERS,
    "precision": {name: {"precision": name} for name in ("float32", "bfloat16", "float16")},
    "clipping": {"unclipped": {}, "clipped": {"clip_norm": 0.1}, "clipped-globally": {"global_clip_norm": 0.1}},
    "decay": {"undecayed": {}, "decayed": {"weight_decay": 0.01}},
    "average": {"last": {}, "averaged": {"ema_momentum": 0.9}},
    "schedule": {
        "constant": {},
        "cosine": {"schedule": "cosine", "warmup_epochs": 0.5},
        "step": {"schedule": "step", "decay_epochs": 1.0},
    },
}


def plain(policy: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Nothing more: what comes before the network, what inside, and the words of its hidden layer."""
    return [], [], {}


def normalized(policy: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """State and randomness that belong to a shard."""
    return [], [layers.BatchNormalization(dtype=policy), *(layers.Dropout(0.3, dtype=policy) for _ in range(2))], {}


def augmented(policy: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Random preprocessing, and a normalization without state."""
    # RandomCrop crops in training only.
    crops = [layers.RandomCrop(7, 7, dtype=policy), layers.CenterCrop(7, 7, dtype=policy)]
    before = [*crops, layers.RandomFlip(dtype=policy)]
    return before, [layers.LayerNormalization(dtype=policy)], {}


def regularized(policy: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Penalties on weights and on outputs."""
    return [], [], {"kernel_regularizer": "l2", "activity_regularizer": "l2"}


LAYERS = {part.__name__: part for part in (plain, normalized, augmented, regularized)}
ROWS = {"even": 48, "short-last-batch": 41}


def network(part: str, precision: str) -> Callable[[], keras.Model]:
    """A small convolutional network that computes in `precision`, with the layers of `part`."""

    def build() -> keras.Model:
        policy = keras.DTypePolicy("float32" if precision == "float32" else f"mixed_{precision}")
        before, inside, words = LAYERS[part](policy)
        return keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                *before,
                layers.Conv2D(4, 3, activation="relu", dtype=policy),
                layers.Flatten(dtype=policy),
                *inside,
                layers.Dense(8, activation="relu", dtype=policy, **words),
                layers.Dense(10, dtype=policy),
            ]
        )

    return build


def covering() -> dict[str, Case]:
    """The cases by what they are made of."""
    found = {}
    for part, rows, *chosen in AllPairs([list(LAYERS), list(ROWS), *map(list, FACTORS.values())]):
        words = [FACTORS[factor][choice] for factor, choice in zip(FACTORS, chosen, strict=True)]
        options = {name: value for word in words for name, value in word.items()}
        found[" ".join([part, rows, *chosen])] = Case(
            model=network(part, options["precision"]),
            rows=digits(ROWS[rows]),
            batch=24,
            words=options,
            modes=("reproducible",),
            layouts=EVERY,
            precision=options["precision"],
        )
    return found
