"""Every file of a prepared data set read and compared with its recorded SHA-256, and every record decoded."""

from __future__ import annotations

from pathlib import Path

from trainbox.data import prepared, reading
from trainbox.data.prepare import find
from trainbox.data.prepared import DatasetInfo
from trainbox.data.view import View
from trainbox.errors import DataError


def verify(name: str, *, data_dir: Path, view: View = View()) -> tuple[DatasetInfo, bool]:  # noqa: B008  # frozen
    """What was read, and whether SHA-256 were recorded to compare with: not where TFDS prepared it alone.

    Initialises TensorFlow's devices. Raises DataError when it is not prepared, or naming the file that is damaged, cut
    or missing.
    """
    path = find(name, data_dir)
    if path is None:
        raise DataError(
            f"data set {name} is not prepared in {data_dir}: run 'trainbox data prepare {name}' first, or name another "
            "--data-dir"
        )
    info = prepared.describe(path, name=name, view=view, whole=True)
    for split in prepared.builder(path).info.splits.values():
        for file, rows in zip(split.filenames, split.shard_lengths, strict=True):
            _count(path / Path(file).name, rows)
        reading.check(info, split.name)
    return info, prepared.has_checksums(path)


def _count(file: Path, rows: int) -> None:
    """Compare the records of a file with the number that is described; of TFRecord each carries its own checksum."""
    if ".tfrecord" not in file.name:
        return
    import tensorflow as tf

    found = 0
    try:
        with tf.device("CPU:0"):
            for batch in tf.data.TFRecordDataset(str(file)).batch(reading.BATCH):
                found += len(batch)
    except tf.errors.OpError as error:
        raise prepared.damaged(file.parent, f"{file.name} cannot be read after {found} records") from error
    if found != rows:
        raise prepared.damaged(file.parent, f"{file.name} has {found} records, {rows} are described")
