"""Numbers of training rows, exact."""

import numpy as np
import pytest

from trainbox import measured


def test_mean_and_variance_of_channels_are_those_of_the_rows(monkeypatch):
    """Of the rows that are named alone, whatever they are read in; to the last bit the quotient of integers."""
    images = np.random.default_rng(1).integers(0, 256, (50, 5, 7, 3)).astype(np.uint8)
    rows = np.arange(3, 50, 2)
    mean, variance = measured.channels(images, rows)
    values = images[rows].reshape(-1, 3) / 255.0
    assert mean == pytest.approx(values.mean(axis=0), abs=1e-15)
    assert variance == pytest.approx(values.var(axis=0), abs=1e-15)
    assert mean[0] == int(images[rows][..., 0].sum(dtype=np.int64)) / (255 * len(rows) * 35)
    monkeypatch.setattr(measured, "_CHUNK_BYTES", 1000)
    assert measured.channels(images, rows) == (mean, variance)
    assert measured.channels(images, rows[::-1]) == (mean, variance)


def test_bytes_of_white_do_not_overflow():
    """A variance of 1 stands for a channel that never changes: there is nothing to divide by."""
    white = np.full((3, 300, 300, 1), 255, np.uint8)
    assert measured.channels(white, np.arange(3)) == ((1.0,), (1.0,))


def test_balanced_weights_are_those_of_scikit_learn():
    """n_samples / (n_classes * bincount): its documented formula, over the classes that occur."""
    labels = np.array([0, 0, 0, 1, 3, 3], np.int32)
    assert measured.balanced(labels, 5) == (6 / (3 * 3), 6 / (3 * 1), 1.0, 6 / (3 * 2), 1.0)
