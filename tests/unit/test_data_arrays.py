"""Splits that are decoded once and mapped from then on."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from trainbox import plan
from trainbox.config import RunConfig
from trainbox.data import arrays, pipeline, prepare, reading
from trainbox.errors import DataError


@pytest.fixture
def info(digits_dir, tmp_path):
    """The digits, prepared in a folder of the test's own."""
    shutil.copytree(digits_dir / "digits" / "1.0.0", tmp_path / "digits" / "1.0.0")
    return prepare.prepare("digits", data_dir=tmp_path)


@pytest.fixture
def decoded(info):
    """What is in the files of the training split."""
    return reading.read(info, "train")


def equal(found, expected):
    return all(
        one.dtype == other.dtype and np.array_equal(one, other) for one, other in zip(found, expected, strict=True)
    )


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def test_the_second_time_nothing_is_decoded(info, decoded):
    """The rows are those of the files, which are not needed again; nothing but the arrays is left beside the set."""
    first = arrays.load(info, "train")
    for file in info.path.glob("*.tfrecord*"):
        file.unlink()
    second = arrays.load(info, "train")
    assert equal(first, decoded)
    assert equal(second, decoded)
    assert all(isinstance(array, np.memmap) for array in (*first, *second))
    assert sorted(path.name for path in arrays.place(info).rglob("*")) == [
        "arrays.json",
        "inputs.npy",
        "labels.npy",
        "train",
    ]


def test_what_is_written_into_them_goes_nowhere(info, decoded):
    arrays.load(info, "train")[0][:] = 0
    assert equal(arrays.load(info, "train"), decoded)


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda folder: flip(folder / "inputs.npy", 5000), "inputs.npy has another SHA-256"),
        (lambda folder: os.truncate(folder / "labels.npy", 500), "labels.npy has another size"),
        (lambda folder: (folder / "inputs.npy").unlink(), "No such file"),
        (lambda folder: (folder / "arrays.json").write_text("{"), "arrays.json cannot be read"),
    ],
)
def test_damaged_arrays_are_decoded_again(info, decoded, harm, reason):
    """They are no more than a copy: one line, and the right rows, which last."""
    folder = arrays.place(info) / "train"
    arrays.load(info, "train")
    harm(folder)
    said = []
    assert equal(arrays.load(info, "train", say=said.append), decoded)
    assert len(said) == 1
    assert said[0].startswith(f"the decoded rows in {folder} are damaged (")
    assert reason in said[0]
    assert equal(arrays.load(info, "train", say=said.append), decoded)
    assert len(said) == 1


def test_other_files_have_arrays_of_their_own(info):
    """A set that was prepared again from other originals is never served with the rows of before."""
    other = prepare.DatasetInfo(**{**vars(info), "checksums": dict.fromkeys(info.checksums, "0" * 64)})
    assert arrays.place(other) != arrays.place(info)


def test_where_they_cannot_be_kept_rows_come_from_memory(info, decoded):
    """As on a read-only volume: a note that says why, and nothing left."""
    in_the_way = info.path.parent / ".1.0.0-arrays"
    in_the_way.write_text("")
    said = []
    found = arrays.load(info, "train", say=said.append)
    assert equal(found, decoded)
    assert not any(isinstance(array, np.memmap) for array in found)
    assert said == [
        "note: split 'train' is decoded at every start, because its rows cannot be kept in "
        f"{arrays.place(info) / 'train'} (Not a directory)"
    ]


def test_a_damaged_set_leaves_no_arrays(info):
    file = next(info.path.glob("*train.tfrecord*"))
    flip(file, 5000)
    with pytest.raises(DataError, match="split 'train' cannot be read"):
        arrays.load(info, "train")
    assert list(arrays.place(info).iterdir()) == []


def test_several_may_decode_at_once(info, decoded):
    """The first to end counts, and the others use its rows."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(arrays.load(info, "train"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [equal(each, decoded) for each in found] == [True] * 3
    assert [path.name for path in arrays.place(info).iterdir()] == ["train"]


def test_an_unknown_split_is_named(info):
    with pytest.raises(DataError, match="has no split 'trian': it has train, test"):
        arrays.load(info, "trian")


def anonymous_bytes() -> int:
    """Memory of this process that is not of files."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def test_a_feed_takes_no_memory_for_mapped_rows(tmp_path):
    """Rows of half a gigabyte, of which a tenth of the memory of one copy must be enough for all."""
    rows, shape = 10_000, (224, 224, 1)
    np.lib.format.open_memmap(tmp_path / "inputs.npy", mode="w+", dtype=np.uint8, shape=(rows, *shape))[-1] = 7
    split = pipeline.Split(
        inputs=np.load(tmp_path / "inputs.npy", mmap_mode="c"), labels=np.arange(rows, dtype=np.int32)
    )
    made = plan.make(RunConfig(batch_size=100, shards=1), replicas=1, examples=rows)
    pipeline.ResidentFeed(pipeline.Split(inputs=split.inputs[:1], labels=split.labels[:1]), made)  # starts TensorFlow
    before = anonymous_bytes()
    feed = pipeline.ResidentFeed(split, made)
    feed.begin(pipeline.epoch_order(made, seed=1, epoch=0), first_step=0)
    seen = []
    for _ in range(made.steps_per_epoch):
        source, indices, _ = feed.take(1)
        inputs, labels = feed.fetch(source, indices.ravel())
        assert inputs.shape == (100, *shape)
        seen += labels.numpy().tolist()
    assert sorted(seen) == list(range(rows))
    assert inputs.numpy().max() in (0, 7)
    assert anonymous_bytes() - before < rows * 224 * 224 // 10
