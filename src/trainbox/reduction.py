"""Sums in one fixed order: a pairwise tree over V shards, the same tree inside a replica and across replicas.

Floating-point addition is not associative, so the order decides the last bits. Contiguous blocks of 2^k shards are
whole subtrees; a replica that holds such a block computes its subtree alone, and the replicas' partial sums are the
leaves of the rest. So the total is the same whether one replica adds all shards or each adds its block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Tensors = list[Any]


def pairwise(values: Sequence[Any]) -> Any:
    """Sum of one or more tensors of equal shape: neighbours first, an odd last one carried up as it is."""
    level = list(values)
    while len(level) > 1:
        pairs = [left + right for left, right in zip(level[::2], level[1::2], strict=False)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def gather_and_add(context: Any, tensors: Tensors) -> Tensors:
    """On one replica of several workers: the pairwise sum of what all replicas have, the same bits on each.

    A ring adds in an order of its own, so here every replica gets all partial sums and adds them by the one tree. They
    travel as one vector for each type, because a gathering for each variable would wait for the network as often.
    """
    totals: list[Any] = [None] * len(tensors)
    for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
        places = [number for number, tensor in enumerate(tensors) if tensor.dtype == kind]
        packed = tf.concat([tf.reshape(tensors[number], [-1]) for number in places], 0)
        gathered = context.all_gather(packed[None], axis=0)
        total = pairwise(tf.unstack(gathered, num=context.num_replicas_in_sync))
        sizes = [tensors[number].shape.num_elements() for number in places]
        for number, part in zip(places, tf.split(total, sizes), strict=True):
            totals[number] = tf.reshape(part, tensors[number].shape)
    return totals


def sum_shards(compute: Callable[[Any], Tensors], shards: int, specs: Sequence[tf.TensorSpec]) -> Tensors:
    """The pairwise sum of `compute(0) … compute(shards - 1)`, in a graph, holding log2(shards) + 1 partial sums.

    `compute` takes the shard's number (an int32 scalar tensor) and returns a list of tensors as `specs` say.
    The shards run one after the other, so that the memory of one is enough for all. The partial sums work as a binary
    counter: when shard i is done, as many levels are merged as i has trailing ones.
    """
    if shards == 1:
        return compute(tf.constant(0))
    levels = shards.bit_length()
    empty = [[tf.zeros(spec.shape, spec.dtype) for spec in specs] for _ in range(levels)]

    def body(shard: Any, partials: list[Tensors]) -> tuple[Any, list[Tensors]]:
        latest = compute(shard)

        def merge(trailing_ones: int) -> list[Tensors]:
            carry = latest
            for level in range(trailing_ones):
                carry = [below + above for below, above in zip(partials[level], carry, strict=True)]
            return [carry if level == trailing_ones else partials[level] for level in range(levels)]

        branches = [lambda n=n: merge(n) for n in range(levels)]
        return shard + 1, tf.switch_case(_trailing_ones(shard, levels), branches)

    _, partials = tf.while_loop(lambda shard, _: shard < shards, body, (tf.constant(0), empty), parallel_iterations=1)
    return _fold(partials, shards)


def _fold(partials: list[Tensors], shards: int) -> Tensors:
    """What is left in the counter after `shards` shards, smallest block last as `pairwise` has it."""
    left = [partials[level] for level in range(len(partials)) if shards >> level & 1]
    total = left[0]
    for block in left[1:]:
        total = [earlier + later for earlier, later in zip(block, total, strict=True)]
    return total


def _trailing_ones(shard: Any, levels: int) -> Any:
    """How many of the lowest bits of `shard` are all set: int32 scalar tensor, at most levels - 1."""
    count = tf.constant(0)
    for level in range(1, levels):
        mask = (1 << level) - 1
        count += tf.cast(tf.equal(tf.bitwise.bitwise_and(shard, mask), mask), tf.int32)
    return count
