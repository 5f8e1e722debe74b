"""The rows of a prepared split as arrays, decoded in parallel and always in the same order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trainbox.data import prepared
from trainbox.data.features import IMAGE, SEQUENCE, Features
from trainbox.data.prepared import DatasetInfo
from trainbox.errors import DataError

Array = npt.NDArray[Any]

BATCH = 1024


def read(info: DatasetInfo, split: str) -> tuple[Array, Array]:
    """Inputs [rows, …] and labels [rows] of `split` in the types of `info.features`, in the order of the files.

    Initialises TensorFlow's devices, so they must be configured before; all the work is done on the CPU. Raises
    DataError for an unknown split, damaged files, a label that is no class, or a number that is none.
    """
    features, rows = info.features, info.splits.get(split, 0)
    inputs, labels = np.empty((rows, *info.input_shape), features.input_type), np.empty(rows, features.label_type)
    row = 0
    for some_inputs, some_labels in batches(info, split):
        inputs[row : row + len(some_labels)] = some_inputs
        labels[row : row + len(some_labels)] = some_labels
        row += len(some_labels)
    return inputs, labels


def batches(info: DatasetInfo, split: str) -> Iterator[tuple[Array, Array]]:
    """What `read` gives, a batch of at most `BATCH` rows at a time, each looked at; errors as `read`."""
    if split not in info.splits:
        raise DataError(f"data set {info.full_name} has no split {split!r}: it has {', '.join(info.splits)}")
    import tensorflow as tf

    row, rows = 0, info.splits[split]
    try:
        with tf.device("CPU:0"), _quiet():
            for inputs, labels in _batches(info, split):
                if row + len(labels) > rows:
                    raise prepared.damaged(info.path, f"split {split!r} has more rows than the {rows} described")
                _check_shape(inputs.shape, (len(labels), *info.input_shape), info, split)
                _check_labels(labels, info, split)
                _check_numbers(inputs, info.features.inputs, info, split)
                yield inputs, labels.astype(info.features.label_type)
                row += len(labels)
    except tf.errors.OpError as error:
        raise prepared.damaged(info.path, f"split {split!r} cannot be read ({_reason(error)})") from error
    if row != rows:
        raise prepared.damaged(info.path, f"split {split!r} has {row} rows, {rows} are described")


def check(info: DatasetInfo, split: str) -> None:
    """Decode every row of `split` and look whether it is as described, a batch at a time; errors as `read`."""
    for _ in batches(info, split):
        pass


def _batches(info: DatasetInfo, split: str) -> Iterator[tuple[Array, Array]]:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    features, columns = info.features, len(info.features.inputs)
    skipped = {features.inputs[0]: tfds.decode.SkipDecoding()} if features.resized else {}
    wanted = tfds.decode.PartialDecoding(_nested(features), decoders=skipped)
    # One file after the other: interleaved, the order would depend on how many files TFDS cut the split into.
    order = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    rows = prepared.builder(info.path).as_dataset(split=split, shuffle_files=False, decoders=wanted, read_config=order)
    rows = rows.map(lambda row: _picked(row, features), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    for *inputs, labels in rows.batch(BATCH, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2).as_numpy_iterator():
        beside = features.kind not in (IMAGE, SEQUENCE) and columns > 1
        flat = [np.reshape(one, (len(labels), -1)).astype(np.float32) for one in inputs] if beside else inputs
        yield (np.concatenate(flat, axis=1) if beside else np.asarray(flat[0], features.input_type)), labels


def _nested(features: Features) -> dict[str, Any]:
    """The features that are wanted, as TFDS asks for them: `a/b` is `{"a": {"b": True}}`."""
    found: dict[str, Any] = {}
    for path in (*features.inputs, features.label):
        *groups, last = path.split("/")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = True
    return found


def _picked(row: Any, features: Features) -> tuple[Any, ...]:
    """The inputs and the label of one row; in a graph."""
    import tensorflow as tf

    def at(path: str) -> Any:
        found = row
        for key in path.split("/"):
            found = found[key]
        return found

    inputs, label = [at(path) for path in features.inputs], tf.reshape(at(features.label), [])
    if features.kind == IMAGE:
        image = _resized(inputs[0], features.input_shape) if features.resized else inputs[0]
        inputs = [tf.transpose(image, [1, 0, 2]) if features.transposed else image]
    elif features.kind == SEQUENCE:
        cut = inputs[0][: features.input_shape[0]]
        missing = features.input_shape[0] - tf.shape(cut)[0]
        inputs = [tf.pad(cut, [[0, missing], *([[0, 0]] * (len(features.input_shape) - 1))])]
    elif not inputs[0].shape.rank:
        inputs = [tf.reshape(one, [-1]) for one in inputs]
    return (*inputs, label)


def _resized(encoded: Any, shape: tuple[int, ...]) -> Any:
    """One encoded image stretched to `shape`, with anti-aliasing where it gets smaller; of an animation the first."""
    import tensorflow as tf

    image = tf.io.decode_image(encoded, channels=shape[-1], expand_animations=False)
    image = tf.image.resize(tf.ensure_shape(image, (None, None, shape[-1])), shape[:2], antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)


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
        raise prepared.damaged(info.path, f"split {split!r} has inputs {found} where {expected} are described")


def _check_labels(labels: Array, info: DatasetInfo, split: str) -> None:
    """A label outside the classes is an error on the CPU, and on a GPU a loss of NaN that nothing explains."""
    if info.num_classes is None:
        _check_numbers(labels, (info.features.label,), info, split)
        return
    wrong = labels[(labels < 0) | (labels >= info.num_classes)]
    if wrong.size:
        raise DataError(
            f"data set {info.full_name} has the label {wrong[0]} in split {split!r}, and {info.num_classes} classes "
            f"are declared, 0 to {info.num_classes - 1}: it cannot be trained on as it is"
        )


def _check_numbers(rows: Array, names: tuple[str, ...], info: DatasetInfo, split: str) -> None:
    """A missing value would make every weight NaN."""
    if rows.dtype.kind == "f" and not np.isfinite(rows).all():
        raise DataError(
            f"data set {info.full_name} has values in split {split!r} that are missing or infinite (of "
            f"{', '.join(names)}): leave features out with --inputs, or prepare a set without such rows"
        )


def _reason(error: Any) -> str:
    return f"{type(error).__name__}: {' '.join(str(error.message).split())[:200]}"
