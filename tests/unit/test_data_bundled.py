"""The digits in the package."""

from pathlib import Path

import numpy as np
import pytest

from trainbox.data import bundled
from trainbox.errors import DataError


def test_the_digits_are_those_of_scikit_learn() -> None:
    """1,797 images of pixels 0..16 with their classes, in the source's order, and the digest that the NOTICE states."""
    images, labels = bundled.load()
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, 16)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert labels[:10].tolist() == list(range(10))
    assert bundled.SHA256 in bundled.FILE.with_name("digits.NOTICE").read_text()


def test_pixels_are_scaled_to_a_byte() -> None:
    """Each of the 17 values becomes round(v * 255 / 16)."""
    scaled = bundled.to_bytes(np.arange(17, dtype=np.uint8))
    assert scaled.dtype == np.uint8
    assert scaled.tolist() == [0, 16, 32, 48, 64, 80, 96, 112, 128, 143, 159, 175, 191, 207, 223, 239, 255]


def test_a_fifth_of_every_class_is_for_the_test() -> None:
    """Training and test rows share none, miss none, and are the same in every version of NumPy."""
    _, labels = bundled.load()
    rows = bundled.split(labels)
    assert sorted([*rows["train"], *rows["test"]]) == list(range(1797))
    assert (len(rows["train"]), len(rows["test"])) == (1438, 359)
    assert np.bincount(labels[rows["test"]]).tolist() == [36, 36, 35, 37, 36, 36, 36, 36, 35, 36]
    assert rows["test"][:8].tolist() == [3, 7, 13, 19, 36, 38, 43, 48]


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    """A file with other arrays is refused with their digest; one that is cut, or not there, with the reason."""
    images, labels = bundled.load()
    changed = tmp_path / "changed.npz"
    np.savez_compressed(changed, images=images[::-1], labels=labels)
    with pytest.raises(
        DataError, match=r"^the bundled digits in .*changed\.npz are damaged \(SHA-256 [0-9a-f]{64}\): install"
    ):
        bundled.load(changed)
    cut = tmp_path / "cut.npz"
    cut.write_bytes(bundled.FILE.read_bytes()[:20_000])
    for file in (cut, tmp_path / "absent.npz"):
        with pytest.raises(
            DataError, match=rf"^the bundled digits cannot be read from {file} \(.*\): install trainbox again$"
        ):
            bundled.load(file)
