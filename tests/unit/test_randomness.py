"""Draws are pure functions of where they are used."""

from __future__ import annotations

import numpy as np

from trainbox import randomness


def test_the_mixing_function_is_splitmix64():
    """The first outputs of splitmix64 with seed 1234567, from the reference implementation."""
    states = np.array([1234567, 1234567 + 0x9E3779B97F4A7C15], np.uint64)
    assert randomness.mix(states).tolist() == [6457827717110365317, 3203168211198807973]


def test_an_order_is_a_permutation_of_its_epoch():
    """Every row once, the same for the same seed and epoch, another for another (D4)."""
    order = randomness.permutation(1000, seed=7, epoch=2)
    assert sorted(order.tolist()) == list(range(1000))
    assert order.tolist() == randomness.permutation(1000, seed=7, epoch=2).tolist()
    assert order.tolist() != randomness.permutation(1000, seed=7, epoch=0).tolist()
    assert order.tolist() != randomness.permutation(1000, seed=8, epoch=2).tolist()


def test_an_order_stays_what_it_was():
    """The order of a seed is part of every recorded result: it may not change between versions."""
    assert randomness.permutation(12, seed=1, epoch=0).tolist() == [7, 2, 10, 4, 5, 9, 3, 8, 6, 0, 11, 1]


def test_seeds_do_not_depend_on_the_block():
    """Steps 3 and 4 drawn alone have the seeds that they have in a block that begins at step 0."""
    whole = randomness.shard_seeds(seed=5, first_step=0, steps=8, shards=4, variables=3)
    part = randomness.shard_seeds(seed=5, first_step=3, steps=2, shards=4, variables=3)
    assert whole.dtype == np.uint32
    assert (whole[3:5] == part).all()


def test_no_two_layers_shards_or_steps_share_numbers():
    """All seeds of 50 steps, 8 shards and 6 variables differ, and no draw of one generator meets another's."""
    seeds = randomness.shard_seeds(seed=1, first_step=0, steps=50, shards=8, variables=6).reshape(-1, 2)
    draws = {(int(a), (int(b) + n) % 2**32) for a, b in seeds for n in range(4)}
    assert len(draws) == 50 * 8 * 6 * 4


def test_seeds_of_augmentation_come_after_those_of_the_model_and_share_nothing_with_them():
    """The model's stay what they were without any."""
    both = randomness.shard_seeds(seed=5, first_step=2, steps=3, shards=4, variables=3, practice=3)
    alone = randomness.shard_seeds(seed=5, first_step=2, steps=3, shards=4, variables=3)
    assert both.shape == (3, 4, 6, 2)
    assert (both[:, :, :3] == alone).all()
    assert len({tuple(pair) for pair in both.reshape(-1, 2).tolist()}) == 3 * 4 * 6
    words = [[2272388685, 2161977098], [1921320835, 2343948962], [715978972, 2711092923]]
    assert both[0, 0, 3:].tolist() == words
