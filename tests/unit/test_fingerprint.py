"""The fingerprint of tensors: every bit counts, and no order in which it is added."""

import numpy as np
import pytest
import tensorflow as tf

from trainbox.fingerprint import fingerprint

TYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32")


def of(*arrays):
    return int(fingerprint([tf.constant(array) for array in arrays]))


def expected(*arrays):
    """The same in whole numbers of any length."""
    total = 0
    for array in arrays:
        words = array.ravel().view(f"int{min(array.dtype.itemsize, 4) * 8}").tolist()
        total = total * 0x9E3779B97F4A7C15 + sum(word * (word + 1) for word in words)
    return total % 2**64


@pytest.mark.parametrize("dtype", TYPES)
def test_it_is_the_sum_modulo_two_to_the_64(dtype):
    """Of any type, whatever the shape; a compiled function computes the same."""
    arrays = [np.random.default_rng(n).integers(0, 99, (n, 5)).astype(dtype) for n in (1, 400)]
    assert of(*arrays) % 2**64 == expected(*arrays)
    compiled = tf.function(lambda *tensors: fingerprint(tensors), autograph=False)
    assert int(compiled(*map(tf.constant, arrays))) == of(*arrays)


@pytest.mark.parametrize("dtype", TYPES[:3])
def test_one_bit_of_one_value_changes_it(dtype):
    """The last bit of a number, the sign of a zero, and one bit up where another goes down."""
    array = np.linspace(-1, 1, 101).astype(dtype)
    (zero,) = np.flatnonzero(array == 0)
    up, sign, both = array.copy(), array.copy(), array.copy()
    up[7] = np.nextafter(up[7], 2, dtype=dtype)
    sign[zero] = -sign[zero]
    both[[90, 91]] = np.nextafter(both[90], 2, dtype=dtype), np.nextafter(both[91], -2, dtype=dtype)
    assert len({of(array), of(up), of(sign), of(both)}) == 4


def test_tensors_that_change_places_change_it():
    """Two gradients of one shape are not one another; bfloat16 and booleans have one too."""
    a, b = np.float32([1, 2]), np.float32([2, 3])
    assert of(a, b) != of(b, a)
    assert of(tf.cast(a, tf.bfloat16)) != of(tf.cast(b, tf.bfloat16))
    assert of(np.array([True, False])) != of(np.array([True, True]))
