"""Two images in one: mixup (Zhang et al., 2018) and cutmix (Yun et al., 2019), within a shard.

Images are float32 [rows, height, width, channels]. Each row gets a partner among the real rows of its shard, and one
share holds for the whole shard: so much of the loss is that of the row's own label, the rest that of its partner's.
A spare row (weight 0), which repeats a row of the batch, is nobody's partner and its own: what is a sum over examples
stays one over the real rows, each of which is once the first and once the second of a pair.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def partners(numbers: Any, weights: Any) -> Any:
    """A permutation of the rows of weight above 0, int32 [rows], in the order of `numbers`, float32 [rows] in [0, 1).

    Rows of weight 0 are their own partners.
    """
    real = weights > 0
    order = tf.argsort(tf.where(real, numbers, 2.0), stable=True)
    place = tf.cumsum(tf.cast(real, tf.int32), exclusive=True)
    return tf.where(real, tf.gather(order, place), tf.range(tf.size(numbers)))


def draw_share(seed: Any, alpha: float) -> Any:
    """A share from Beta(`alpha`, `alpha`): float32 scalar in [0, 1], a pure function of `seed`, int32 [2]."""
    first, second = tf.unstack(tf.random.stateless_gamma([2], seed, alpha, dtype=tf.float64))
    return tf.cast(first / (first + second), tf.float32)


def mixed(images: Any, partner: Any, share: Any) -> Any:
    """`share` of each image and the rest of its partner's."""
    return share * images + (1.0 - share) * tf.gather(images, partner)


def draw_box(down: Any, right: Any, share: Any, *, height: int, width: int) -> tuple[Any, Any]:
    """A box that leaves about `share` of an image outside, and what it leaves indeed, since it is cut off at the edges.

    Its middle is anywhere: `down` and `right` are in [0, 1). The box is bool [height, width], the share a float32.
    """
    side = tf.sqrt(1.0 - share)
    inside = [_span(number, side, size) for number, size in ((down, height), (right, width))]
    box = inside[0][:, None] & inside[1][None, :]
    area = tf.reduce_sum(tf.cast(inside[0], tf.float32)) * tf.reduce_sum(tf.cast(inside[1], tf.float32))
    return box, 1.0 - area / float(height * width)


def _span(number: Any, side: Any, size: int) -> Any:
    """Which of `size` places lie in a stretch of a share `side` of them about the place of `number`: bool [size]."""
    length = tf.floor(side * size)
    begin = tf.floor(number * size) - tf.floor(length / 2.0)
    places = tf.range(float(size))
    return (places >= begin) & (places < begin + length)


def cut(images: Any, partner: Any, box: Any) -> Any:
    """Each image with the pixels of its partner's in the box."""
    return tf.where(box[None, :, :, None], tf.gather(images, partner), images)
