"""Pairs of images within a shard."""

import numpy as np
import pytest
import tensorflow as tf

from trainbox import mixing
from trainbox.practice import Practice
from trainbox.randomness import shard_seeds

SEEDS = shard_seeds(seed=1, first_step=0, steps=1, shards=1, variables=0, practice=3)[0, 0]


def images(rows, channels=1):
    return np.random.default_rng(3).random((rows, 6, 8, channels)).astype(np.float32)


def test_partners_are_a_permutation_of_the_real_rows():
    """In the order of their numbers, the first of two equal ones first; spare rows are alone."""
    drawn = np.float32([0.3, 0.1, 0.0, 0.2, 0.1])
    assert mixing.partners(drawn, np.float32([1, 1, 1, 1, 1])).numpy().tolist() == [2, 1, 4, 3, 0]
    assert mixing.partners(drawn, np.float32([1, 1, 0, 1, 0])).numpy().tolist() == [1, 3, 2, 0, 4]
    assert mixing.partners(drawn, np.float32([0, 0, 0, 0, 0])).numpy().tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 1000.0])
def test_shares_are_those_of_a_beta_distribution(alpha):
    """Mean 1/2 and variance 1 / (4 (2 alpha + 1)) over 2,000 seeds; each is in [0, 1] and the same again."""
    draw = tf.function(lambda seed: mixing.draw_share(seed, alpha), autograph=False)
    drawn = np.array([draw(tf.constant([7, seed])).numpy() for seed in range(2000)])
    assert (drawn >= 0).all()
    assert (drawn <= 1).all()
    assert drawn.mean() == pytest.approx(0.5, abs=0.04)
    assert drawn.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)
    assert mixing.draw_share(tf.constant([7, 5]), alpha).numpy() == drawn[5]


def test_a_mixture_is_the_weighted_sum():
    """To 1e-7."""
    given, partner = images(3), [2, 0, 1]
    found = mixing.mixed(given, partner, np.float32(0.7)).numpy()
    assert found == pytest.approx(0.7 * given + 0.3 * given[partner], abs=1e-7)


def test_a_box_is_cut_off_at_the_edges_and_its_share_is_what_is_left():
    """In the middle, in a corner, and none at all."""
    box, share = mixing.draw_box(0.5, 0.5, np.float32(0.75), height=6, width=8)
    assert box.numpy().astype(int).tolist() == [[0] * 8] * 2 + [[0, 0, 1, 1, 1, 1, 0, 0]] * 3 + [[0] * 8]
    assert share.numpy() == np.float32(1 - 12 / 48)
    box, share = mixing.draw_box(0.0, 0.99, np.float32(0.75), height=6, width=8)
    assert np.argwhere(box).tolist() == [[0, 5], [0, 6], [0, 7], [1, 5], [1, 6], [1, 7]]
    assert share.numpy() == np.float32(1 - 6 / 48)
    box, share = mixing.draw_box(0.5, 0.5, np.float32(1.0), height=6, width=8)
    assert (box.numpy().any(), share.numpy()) == (False, 1.0)


def test_a_cut_has_the_partners_pixels_in_the_box():
    """And its own outside."""
    given, partner = images(3, 2), [2, 0, 1]
    box = np.zeros((6, 8), bool)
    box[1:4, 2:7] = True
    found = mixing.cut(given, partner, box).numpy()
    assert (found[:, 1:4, 2:7] == given[partner][:, 1:4, 2:7]).all()
    assert (np.where(box[None, ..., None], given, found) == given).all()


@pytest.mark.parametrize("words", [{"mixup": 0.4}, {"cutmix": 1.0}])
def test_spare_rows_change_nothing_of_the_real_ones(words):
    """A shard of four real rows and three repeated ones: whatever these are, the real rows are the same to the bit."""
    practice, weights = Practice(**words), np.float32([1, 1, 1, 1, 0, 0, 0])
    given, labels = images(7), tf.constant([0, 1, 2, 3, 0, 1, 2])
    found, targets = practice(tf.constant(given), labels, weights, tf.constant(SEEDS), host="CPU:0")
    assert sorted(targets.others.numpy()[:4].tolist()) == [0, 1, 2, 3]
    other = np.concatenate([given[:4], 1 - given[4:]])
    again, _ = practice(tf.constant(other), labels, weights, tf.constant(SEEDS), host="CPU:0")
    assert (again.numpy()[:4] == found.numpy()[:4]).all()
