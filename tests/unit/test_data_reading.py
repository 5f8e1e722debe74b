"""Splits as arrays: their rows, their order, and what a damaged file says when it is read."""

import dataclasses
import hashlib
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainbox.data import bundled, prepare
from trainbox.data.prepare import DatasetInfo
from trainbox.errors import DataError


def sha256(array: Any) -> str:
    """The digest of an array's bytes."""
    return hashlib.sha256(array.tobytes()).hexdigest()


def by_content(images: Any, labels: Any) -> list[tuple[str, int]]:
    """The digest of each image with its label, whatever the order of the rows."""
    return sorted((sha256(image), int(label)) for image, label in zip(images, labels, strict=True))


@pytest.fixture(scope="module")
def digits(digits_dir: Path) -> DatasetInfo:
    """The prepared digits."""
    return prepare.prepare("digits", data_dir=digits_dir)


def test_the_digits_are_read_as_they_were_packed(digits: DatasetInfo) -> None:
    """Both splits hold the images of the package, each once, in an order that never changes."""
    source, classes = bundled.load()
    for split, rows in bundled.split(classes).items():
        images, labels = prepare.read(digits, split)
        assert (images.dtype, images.shape) == (np.uint8, (len(rows), 8, 8, 1))
        assert (labels.dtype, labels.shape) == (np.int32, (len(rows),))
        expected = bundled.to_bytes(source[rows])[..., None]
        assert by_content(images, labels) == by_content(expected, classes[rows])
    assert sha256(images) == "259b1e013f2328e23e20906b57e3e98ccd71c823167cad1d0cfe345e489c060d"
    assert sha256(labels) == "492386688b752d4d35069e6849bee7611e60fb49593e0ead81957a2d7bb19d2f"


def test_nothing_is_left_running(digits: DatasetInfo) -> None:
    """No thread of Python's is left behind."""
    before = set(threading.enumerate())
    prepare.read(digits, "test")
    assert set(threading.enumerate()) == before


def test_real_images_come_from_tfds_own_builder(fashion_mnist_dir: Path) -> None:
    """fashion_mnist has its 60,000 and 10,000 images, a tenth of each class, and the same bytes every time."""
    info = prepare.prepare("fashion_mnist", data_dir=fashion_mnist_dir, offline=True)
    assert (info.full_name, info.input_shape, info.num_classes) == ("fashion_mnist/3.0.1", (28, 28, 1), 10)
    assert info.splits == {"train": 60_000, "test": 10_000}
    images, labels = prepare.read(info, "test")
    assert np.bincount(labels).tolist() == [1000] * 10
    assert sha256(images) == "a84f70bc4eaa1b2c5e671e99525a60f9dbe89328fa62013e4aa30ba11800c4df"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"num_classes": 9}, "data set digits/1.0.0 has the label 9 in split 'test', and 9 classes are declared, 0 to "
         "8: it cannot be trained on as it is"),
        ({"splits": {"test": 360}}, "split 'test' has 359 rows, 360 are described"),
        ({"splits": {"test": 358}}, "split 'test' has more rows than the 358 described"),
        ({"input_shape": (8, 8, 3)}, "split 'test' has inputs (359, 8, 8, 1) where (359, 8, 8, 3) are described"),
        ({"splits": {"train": 1, "dev": 2}}, "data set digits/1.0.0 has no split 'test': it has train, dev"),
    ],
)  # fmt: skip
def test_rows_other_than_described_are_told(digits: DatasetInfo, change: dict[str, Any], line: str) -> None:
    """A split that is not what the description says is one line with both."""
    if "splits" not in change:
        change = {"features": dataclasses.replace(digits.features, **change)}
    with pytest.raises(DataError) as refusal:
        prepare.read(dataclasses.replace(digits, **change), "test")
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def flip(file: Path) -> None:
    """Flip one bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip, "DataLossError: "),
        (lambda file: file.write_bytes(file.read_bytes()[:-5]), "DataLossError: "),
        (Path.unlink, "NotFoundError: "),
    ],
)
def test_files_damaged_after_the_check_are_told(
    digits: DatasetInfo, tmp_path: Path, damage: Callable[[Path], Any], reason: str
) -> None:
    """What happens to a file between its check and its reading is one line that names folder and split."""
    path = shutil.copytree(digits.path, tmp_path / "1.0.0")
    damage(path / "digits-test.tfrecord-00000-of-00001")
    with pytest.raises(DataError) as refusal:
        prepare.read(dataclasses.replace(digits, path=path), "test")
    assert str(refusal.value).startswith(f"the data set in {path} is damaged: split 'test' cannot be read ({reason}")
    assert "\n" not in str(refusal.value)
