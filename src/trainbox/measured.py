"""What training rows are like, as numbers that are the same on every machine (no TensorFlow)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# So many bytes of images at a time.
_CHUNK_BYTES = 1 << 24


def channels(images: npt.NDArray[Any], rows: npt.NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and variance of each channel over `rows` of `images`, uint8 [n, height, width, channels], as of [0, 1].

    Bytes are added as integers and divided once, so that no order and no machine gives another result. A channel that
    is the same everywhere gets the variance 1, as nothing can be divided by 0.
    """
    size = max(1, _CHUNK_BYTES // max(1, int(np.prod(images.shape[1:]))))
    total, squares, count = np.zeros(images.shape[3], np.uint64), np.zeros(images.shape[3], np.uint64), 0
    for first in range(0, len(rows), size):
        chunk = images[rows[first : first + size]]
        count += chunk.shape[0] * chunk.shape[1] * chunk.shape[2]
        total += chunk.sum(axis=(0, 1, 2), dtype=np.uint64)
        squares += np.square(chunk, dtype=np.uint16).sum(axis=(0, 1, 2), dtype=np.uint64)
    # Python's integers do not overflow, and their quotient is rounded once.
    means = tuple(int(value) / (255 * count) for value in total)
    spreads = [count * int(square) - int(value) ** 2 for value, square in zip(total, squares, strict=True)]
    return means, tuple(spread / (255 * count) ** 2 if spread else 1.0 for spread in spreads)


def balanced(labels: npt.NDArray[Any], classes: int) -> tuple[float, ...]:
    """Weights of so many classes that give each the same sum over `labels`, integers [n]: rows / (present · count).

    `present` is how many classes occur, as in scikit-learn. One that does not occur gets 1.
    """
    counts = np.bincount(labels, minlength=classes)
    present = int((counts > 0).sum())
    return tuple(len(labels) / (present * int(count)) if count else 1.0 for count in counts)
