"""64 bits over all bits of some tensors, for telling whether two steps computed the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

# Odd, so that multiplying by it modulo 2^64 loses nothing: 2^64 divided by the golden ratio, as a signed number.
_FACTOR = 0x9E3779B97F4A7C15 - 2**64


def fingerprint(tensors: Sequence[Any]) -> Any:
    """An int64 scalar tensor that is the same for the same bits in the same order of tensors.

    Each word w of 32 bits counts as w · (w + 1). Integers are added modulo 2^64, where no order, and so no number of
    threads, changes a sum; a plain sum of the words would often miss that one has grown by a bit and another shrunk by
    one. Two values of one tensor that change places are not noticed.
    """
    total = tf.constant(0, tf.int64)
    for tensor in tensors:
        words = _words(tensor)
        total = total * _FACTOR + tf.reduce_sum(words * (words + 1))
    return total


def _words(tensor: Any) -> Any:
    """The bits of a tensor as int64, 32 of them in each, or 16 of a type that has no more."""
    if tensor.dtype.is_bool:
        return tf.cast(tensor, tf.int64)
    integer = tf.int16 if tensor.dtype.size == 2 else tf.int32 if tensor.dtype.size >= 4 else tf.int8
    return tf.cast(tf.bitcast(tensor, integer), tf.int64)
