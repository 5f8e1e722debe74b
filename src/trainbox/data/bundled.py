"""The handwritten digits in this package as arrays: whether they are whole, and how they split. No TensorFlow."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainbox.errors import DataError

FILE = Path(__file__).with_name("digits.npz")
# Of the two arrays, not of the file: zlib may pack the same arrays in another way.
SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
SPLIT_SEED = 0
TEST_SHARE = 0.2

Bytes = npt.NDArray[np.uint8]


def load(file: Path = FILE) -> tuple[Bytes, Bytes]:
    """Images uint8 [1797, 8, 8] of pixels 0..16 and labels uint8 [1797], in the order of their source.

    Raises DataError if the file is missing or its arrays are not the ones that it was made with.
    """
    try:
        with np.load(file, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"the bundled digits cannot be read from {file} ({error}): install trainbox again") from error
    found = digest(images, labels)
    if found != SHA256:
        raise DataError(f"the bundled digits in {file} are damaged (SHA-256 {found}): install trainbox again")
    return images, labels


def digest(images: Bytes, labels: Bytes) -> str:
    """SHA-256 over both arrays' bytes, in hexadecimal."""
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()


def to_bytes(pixels: Bytes) -> Bytes:
    """Pixels 0..16 scaled to 0..255, rounded."""
    return np.round(pixels * (255 / 16)).astype(np.uint8)


def split(labels: Bytes) -> dict[str, npt.NDArray[np.intp]]:
    """Row numbers of `train` and `test`, ascending: a fifth of every class, drawn by a fixed seed, is for the test.

    A plain draw left 27 test rows to one class and 44 to another, which 359 rows are too few for. `RandomState` is used
    because NumPy keeps its stream the same for ever.
    """
    draw = np.random.RandomState(SPLIT_SEED)
    held_out = []
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        held_out.append(draw.permutation(rows)[: round(len(rows) * TEST_SHARE)])
    test = np.sort(np.concatenate(held_out))
    return {"train": np.setdiff1d(np.arange(len(labels)), test), "test": test}
