"""Sums in one fixed order."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainbox.reduction import pairwise, sum_shards


def grouped(values):
    """A stand-in for numbers that shows in which groups they were added."""

    class Shown(str):
        def __add__(self, other):
            return Shown(f"({self}{other})")

    return pairwise([Shown(value) for value in values])


@pytest.mark.parametrize(
    ("leaves", "tree"), [("a", "a"), ("abcd", "((ab)(cd))"), ("abcdef", "(((ab)(cd))(ef))"), ("abcde", "(((ab)(cd))e)")]
)
def test_neighbours_are_added_first(leaves, tree):
    """The tree is the pairwise one, an odd last leaf carried up."""
    assert grouped(leaves) == tree


@pytest.mark.parametrize("shards", [1, 2, 3, 4, 5, 6, 7, 8, 13, 16])
def test_the_counter_adds_in_the_order_of_the_tree(shards):
    """Numbers of very different sizes, whose sum tells the order: equal to `pairwise` to the bit."""
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    values = np.random.default_rng(shards).normal(size=(shards, 5)).astype(np.float32)
    values *= 10.0 ** np.random.default_rng(1).integers(-6, 6, size=(shards, 5)).astype(np.float32)

    @tf.function
    def total():
        return sum_shards(lambda i: [tf.gather(values, i)], shards, [tf.TensorSpec([5], tf.float32)])[0]

    assert total().numpy().tobytes() == pairwise(list(values)).tobytes()


@pytest.mark.parametrize(("shards", "replicas"), [(8, 2), (8, 4), (6, 3)])
def test_blocks_of_replicas_are_subtrees(shards, replicas):
    """Adding each replica's block alone and then the blocks is adding all shards in the tree."""
    values = np.random.default_rng(2).normal(size=(shards, 100)).astype(np.float32)
    blocks = np.split(values, replicas)
    assert pairwise([pairwise(list(b)) for b in blocks]).tobytes() == pairwise(list(values)).tobytes()
