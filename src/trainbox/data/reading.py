"""The rows of a prepared split as arrays, decoded in parallel and always in the same order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trainbox.data import prepared
from trainbox.data.prepared import DatasetInfo
from trainbox.errors import DataError

BATCH = 1024


def read(info: DatasetInfo, split: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Images uint8 [rows, height, width, channels] and labels int32 [rows] of `split`, in the order of the files.

    Initialises TensorFlow's devices, so they must be configured before; all the work is done on the CPU. Raises
    DataError for an unknown split, damaged files, or a label that is no class.
    """
    shape = (info.splits.get(split, 0), *info.input_shape)
    images, labels = np.empty(shape, np.uint8), np.empty(shape[0], np.int32)
    row = 0
    for some_images, some_labels in batches(info, split):
        images[row : row + len(some_labels)] = some_images
        labels[row : row + len(some_labels)] = some_labels
        row += len(some_labels)
    return images, labels


def batches(info: DatasetInfo, split: str) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]]:
    """What `read` gives, a batch of at most `BATCH` rows at a time, each looked at; errors as `read`."""
    if split not in info.splits:
        raise DataError(f"data set {info.full_name} has no split {split!r}: it has {', '.join(info.splits)}")
    import tensorflow as tf

    row, rows = 0, info.splits[split]
    try:
        with tf.device("CPU:0"), _quiet():
            for batch in _batches(info, split):
                size = len(batch[info.label])
                if row + size > rows:
                    raise prepared.damaged(info.path, f"split {split!r} has more rows than the {rows} described")
                _check_shape(batch[info.image].shape, (size, *info.input_shape), info, split)
                _check_labels(batch[info.label], info, split)
                yield batch[info.image], batch[info.label].astype(np.int32)
                row += size
    except tf.errors.OpError as error:
        raise prepared.damaged(info.path, f"split {split!r} cannot be read ({_reason(error)})") from error
    if row != rows:
        raise prepared.damaged(info.path, f"split {split!r} has {row} rows, {rows} are described")


def check(info: DatasetInfo, split: str) -> None:
    """Decode every row of `split` and look whether it is as described, a batch at a time; errors as `read`."""
    for _ in batches(info, split):
        pass


def _batches(info: DatasetInfo, split: str) -> Any:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    wanted = tfds.decode.PartialDecoding({info.image: True, info.label: True})
    # One file after the other: interleaved, the order would depend on how many files TFDS cut the split into.
    order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    rows = prepared.builder(info.path).as_dataset(split=split, shuffle_files=False, decoders=wanted, read_config=order)
    return rows.batch(BATCH, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2).as_numpy_iterator()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TFDS warns of its own use of what it has deprecated."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _check_shape(found: tuple[int, ...], expected: tuple[int, ...], info: DatasetInfo, split: str) -> None:
    if found != expected:
        raise prepared.damaged(info.path, f"split {split!r} has images {found} where {expected} are described")


def _check_labels(labels: npt.NDArray[np.int32], info: DatasetInfo, split: str) -> None:
    """A label outside the classes is an error on the CPU, and on a GPU a loss of NaN that nothing explains."""
    wrong = labels[(labels < 0) | (labels >= info.num_classes)]
    if wrong.size:
        raise DataError(
            f"data set {info.full_name} has the label {wrong[0]} in split {split!r}, and {info.num_classes} classes "
            f"are declared, 0 to {info.num_classes - 1}: it cannot be trained on as it is"
        )


def _reason(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error.message).split())[:200]}"
