"""From arrays in memory to global batches: which rows, in which shard, with which weight.

A batch is only the numbers of its rows. They are a pure function of (seed, epoch, step); the rows themselves are
gathered a whole shard at a time inside the compiled step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainbox import randomness
from trainbox.plan import Plan

Indices = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows of one part of a data set: images uint8 [n, height, width, channels], labels int32 [n]."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.labels)


class ResidentRows:
    """A split kept in host memory as tensors; `fetch` gathers rows and scales pixels to [0, 1]."""

    def __init__(self, split: Split) -> None:
        with tf.device("CPU:0"):
            self._images = tf.constant(split.images)
            self._labels = tf.constant(split.labels)

    def fetch(self, indices: Any) -> tuple[Any, Any]:
        """Images float32 [n, height, width, channels] and labels int32 [n] of the rows `indices`, int32 [n]."""
        images = tf.cast(tf.gather(self._images, indices), tf.float32) / 255.0
        return images, tf.gather(self._labels, indices)


def hold_out(split: Split, *, share: float, seed: int) -> tuple[Split, Split]:
    """Training and validation rows: a `share` of the rows, drawn by `seed` and the same for every epoch, is held out.

    At least one row stays on either side if there are two.
    """
    held = min(max(round(len(split) * share), 1), len(split) - 1)
    order = randomness.permutation(len(split), seed=seed, epoch=0, domain=randomness.SPLIT)
    validation, training = np.sort(order[:held]), np.sort(order[held:])
    return (
        Split(images=split.images[training], labels=split.labels[training]),
        Split(images=split.images[validation], labels=split.labels[validation]),
    )


def epoch_order(plan: Plan, *, seed: int, epoch: int) -> Indices:
    """Row numbers of epoch `epoch` in the order of training: int32 [examples]."""
    return randomness.permutation(plan.examples, seed=seed, epoch=epoch)


def deal(order: Indices, plan: Plan, *, first_step: int, steps: int) -> tuple[Indices, Weights]:
    """Rows and weights of the global batches `first_step` … of an epoch: two arrays of shape [steps, V, rows].

    A batch's rows lie in its shards one after the other. Where rows are missing, at the end of a shard that B does not
    fill or in the last batch, real rows of the same batch are repeated with weight 0, so that every shard has its full
    static shape and none is ever empty.
    """
    slot = np.arange(plan.shards * plan.rows)
    start = (first_step + np.arange(steps))[:, None] * plan.global_batch
    present = np.minimum(plan.global_batch, len(order) - start)
    indices = order[start + slot % present]
    weights = (slot < present).astype(np.float32)
    shape = (steps, plan.shards, plan.rows)
    return indices.reshape(shape), weights.reshape(shape)
