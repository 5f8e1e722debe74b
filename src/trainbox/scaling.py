"""Loss scaling for float16: the loss is multiplied before the gradient is taken and the total divided again.

Keras's own `LossScaleOptimizer` looks at the gradients of replica 0 only, so an overflow elsewhere would poison every
weight. Here the check is on the total, which every replica has, and an overflow skips the step everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000
LOWEST_SCALE = 1.0
LARGEST_SCALE = 2.0**24

State = Any  # float32 [2]: the scale, and the finite steps since it last changed


def initial_state(precision: str) -> list[float]:
    """The state of a new run: scale 1 unless the computation is in float16."""
    return [INITIAL_SCALE if precision == "float16" else LOWEST_SCALE, 0.0]


def all_finite(tensors: Sequence[Any]) -> Any:
    """Whether no element of any tensor is NaN or infinite: bool scalar tensor."""
    return tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors]))


def next_state(state: State, finite: Any) -> State:
    """Half the scale after an overflow, twice after `GROWTH_STEPS` finite steps."""
    scale, good = state[0], state[1] + 1.0
    grow = good >= GROWTH_STEPS
    grown = tf.stack([tf.minimum(tf.where(grow, scale * 2.0, scale), LARGEST_SCALE), tf.where(grow, 0.0, good)])
    return tf.where(finite, grown, tf.stack([tf.maximum(scale / 2.0, LOWEST_SCALE), 0.0]))


def follow(state: Sequence[float], taken: Sequence[bool]) -> Iterator[float]:
    """On the host, the scale that each step of a block had, from the state before and whether each was taken."""
    scale, good = state
    for was_taken in taken:
        yield scale
        good = good + 1 if was_taken else 0.0
        if not was_taken:
            scale = max(scale / 2, LOWEST_SCALE)
        elif good >= GROWTH_STEPS:
            scale, good = min(scale * 2, LARGEST_SCALE), 0.0
