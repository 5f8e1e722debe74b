"""One record at a time: what the decoder gives is what the split holds."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainbox.data import decoding, prepare
from trainbox.data.prepare import DatasetInfo


def rows(info: DatasetInfo) -> list[Any]:
    """Every record of the test split, decoded, in the order of the file."""
    records = tf.data.TFRecordDataset(str(info.path / "digits-test.tfrecord-00000-of-00001"))
    return list(records.map(decoding.decoder(info)).as_numpy_iterator())


def test_records_are_decoded_to_the_rows_of_the_split(digits_dir: Path) -> None:
    """Images and labels are those that the whole split has, in their own types."""
    info = prepare.prepare("digits", data_dir=digits_dir)
    images, labels = prepare.read(info, "test")
    decoded = rows(info)
    assert (decoded[0][0].dtype, decoded[0][1].dtype) == (np.uint8, np.int32)
    assert np.array_equal(np.stack([image for image, _ in decoded]), images)
    assert np.array_equal(np.stack([label for _, label in decoded]), labels)


def test_an_image_of_another_shape_is_refused(digits_dir: Path) -> None:
    """A row that is not as described does not pass for one that is."""
    info = dataclasses.replace(prepare.prepare("digits", data_dir=digits_dir), input_shape=(8, 9, 1))
    with pytest.raises(tf.errors.InvalidArgumentError):
        rows(info)
