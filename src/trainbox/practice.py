"""What training, and only training, does to its examples: augmentation, mixing, and weights of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainbox import augment, mixing
from trainbox.changes import Change
from trainbox.objective import Targets

# The seeds of a shard: for numbers of each image, for those of the shard, for the share of a mixture.
_SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class Practice:
    """`changes` are made to each image, then images are mixed with Beta(`mixup`) or Beta(`cutmix`).

    `class_weights` has a factor of the loss for each class.
    """

    changes: tuple[Change, ...] = ()
    mixup: float | None = None
    cutmix: float | None = None
    class_weights: tuple[float, ...] | None = None

    @property
    def seeds(self) -> int:
        """How many seeds a shard needs."""
        return _SEEDS if self.changes or self.mixup or self.cutmix else 0

    def __call__(self, images: Any, labels: Any, weights: Any, seeds: Any, *, host: str) -> tuple[Any, Targets]:
        """Images and targets to train on, of one shard.

        Images are float32 [rows, height, width, channels] in [0, 1], labels [rows], weights float32 [rows], and seeds
        uint32 [self.seeds, 2]. Numbers are drawn on the device `host`, the same ones whatever device computes. Without
        augmentation and mixing, inputs of any shape are handed on as they are.
        """
        if not self.seeds:
            return images, Targets(labels=labels, class_weights=self.class_weights)
        with tf.device(host):
            seeds = tf.unstack(tf.bitcast(seeds, tf.int32), num=_SEEDS)
            numbers = _numbers(seeds[0], [images.shape[0], augment.numbers_needed(self.changes) + 1])
        images = augment.changed(images, numbers[:, 1:], self.changes)
        if not (self.mixup or self.cutmix):
            return images, Targets(labels=labels, class_weights=self.class_weights)
        return self._mix(images, labels, weights, numbers[:, 0], seeds, host)

    def _mix(self, images: Any, labels: Any, weights: Any, numbers: Any, seeds: Any, host: str) -> tuple[Any, Targets]:
        with tf.device(host):
            partner = mixing.partners(numbers, weights)
            share = mixing.draw_share(seeds[2], self.mixup or self.cutmix or 1.0)
            others = tf.gather(labels, partner)
            if self.cutmix:
                down, right = tf.unstack(_numbers(seeds[1], [2]))
                box, share = mixing.draw_box(down, right, share, height=images.shape[1], width=images.shape[2])
        images = mixing.cut(images, partner, box) if self.cutmix else mixing.mixed(images, partner, share)
        if labels.dtype.is_floating:
            return images, Targets(labels=share * labels + (1.0 - share) * others)
        return images, Targets(labels=labels, others=others, share=share, class_weights=self.class_weights)


def _numbers(seed: Any, shape: list[int]) -> Any:
    """Float32 in [0, 1) by the one generator that every device has."""
    return tf.random.stateless_uniform(shape, seed, alg="philox")
