"""Memory that does not suffice: what is said, and the largest batch that fits."""

import json
import re
from pathlib import Path

import pytest

OWN = """
import keras
import tensorflow as tf
from keras import layers


class Huge(layers.Layer):
    def __init__(self, most):
        super().__init__()
        self.most = most

    def call(self, images):
        times = tf.where(tf.shape(images)[0] < self.most, tf.constant(1, tf.int64), tf.constant(2**36, tf.int64))
        return images + tf.reduce_mean(tf.tile(images[:, :1], [1, times]), axis=1, keepdims=True)


def huge(input_shape, num_classes, most=8):
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), Huge(most), layers.Dense(num_classes)])


def hopeless(input_shape, num_classes):
    return huge(input_shape, num_classes, most=1)


def failing(input_shape, num_classes):
    raise RuntimeError("no luck")


def wide(input_shape, num_classes):
    # About 30 MB a row: all rows take more than any of the limits below, whatever the start took.
    images = keras.Input(input_shape)
    seen = layers.Activation("tanh")(layers.UpSampling2D(280)(images))
    return keras.Model(images, layers.Dense(num_classes)(layers.Flatten()(layers.AveragePooling2D(280)(seen))))
"""
# 101 training rows.
FEW = ("--model", "own.py:wide", "--validation-split", "0.93", "--epochs", "1", "--checkpoint-epochs", "1")


@pytest.fixture(scope="module", autouse=True)
def own(place):
    """The user's models."""
    (place.folder / "own.py").write_text(OWN)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["--logical-devices", "2", "--batch-size", "96", "--shards", "6"],
            "out of memory with a global batch of 96, 48 rows a replica, 16 of them at once; use a smaller "
            "--batch-size (auto finds the largest that fits), or --shards 8 (now 6) to compute 12 rows at once",
        ),
        (
            ["--reproducible"],
            "out of memory with a global batch of 512, 512 rows a replica, 64 of them at once; use a smaller "
            "--batch-size, or --shards 16 (now 8) to compute 32 rows at once",
        ),
    ],
)
def test_a_batch_that_does_not_fit_is_told(place, words, line):
    """A real allocation of TensorFlow fails: exit 1, with the batch and what takes less."""
    command = place.trainbox("train", "--run", f"huge{len(words)}", "--model", "own.py:huge", *words)
    assert (command.wait(), command.complaint) == (1, line)


def test_a_model_that_no_batch_fits_is_told(place):
    """Smaller and smaller batches are tried, each in a process of its own."""
    words = ("--validation-split", "0.999", "--model", "own.py:hopeless", "--batch-size", "auto")
    command = place.trainbox("train", "--run", "none", *words)
    assert command.wait() == 1
    assert command.complaint == (
        "--batch-size auto: not even a batch of one row fits into the memory of these devices; use a smaller model, or "
        "--precision bfloat16"
    )
    assert "trying a batch of 1: does not fit" in command.out


def test_what_is_wrong_with_a_trial_besides_memory_is_told_as_without_it(place):
    """With its own exit code."""
    command = place.trainbox("train", "--run", "wrong", "--model", "own.py:failing", "--batch-size", "auto")
    assert command.wait() == 2
    assert command.complaint.startswith("--model own.py:failing failed at ")
    assert command.complaint.endswith("RuntimeError: no luck")


def found(place, name, *words, **more):
    """The batch that a run with `auto` found, after it has ended well."""
    command = place.trainbox("train", "--run", name, *FEW, "--batch-size", "auto", fresh=True, **more)
    assert (command.wait(), command.err) == (0, "")
    told = re.search(r"--batch-size auto: (\d+), where (\d+) fits", command.out)
    assert told is not None, command.out
    batch, fitting = map(int, told.groups())
    assert batch == int(fitting * 0.85) // 8 * 8 or int(fitting * 0.85)
    return command, batch


def test_auto_finds_a_batch_under_a_limit_and_keeps_the_number(place):
    """Trials fail by a real allocation; what goes on later has the number and tries nothing."""
    limited = ("sh", "-c", 'ulimit -v 4500000; exec "$@"', "sh")
    command, batch = found(place, "limited", prefix=limited)
    assert "does not fit" in command.out
    assert batch < 101
    run = place.run("limited")
    config = json.loads((run.path / "config.json").read_text())
    assert (config["values"]["batch_size"], config["sources"]["batch_size"]) == (batch, "flag --batch-size auto")
    manifest = json.loads((run.path / "manifest.json").read_text())
    assert (manifest["config"]["batch_size"], manifest["plan"]["global_batch"]) == (batch, batch)
    again = place.trainbox("train", "--run", "limited", *FEW, "--batch-size", "auto")
    assert (again.wait(), again.out.splitlines()[1:]) == (0, ["already complete (1/1)"])


@pytest.fixture
def cgroup():
    """A cgroup with 1.2 GB of memory; skipped where none can be made."""
    root = Path("/sys/fs/cgroup")
    second = (root / "cgroup.controllers").exists()
    made = (root if second else root / "memory") / "trainbox-test"
    try:
        made.mkdir()
        (made / ("memory.max" if second else "memory.limit_in_bytes")).write_text("1200000000")
    except OSError as error:
        pytest.skip(f"no cgroup can be limited here: {error.strerror}")
    yield made
    made.rmdir()


def test_auto_keeps_within_a_cgroup(place, cgroup):
    """Trials end before the kernel would kill one, and the run that follows is not killed either."""
    command, batch = found(place, "grouped", prefix=("sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$@"', "sh"))
    assert "does not fit" in command.out
    assert batch < 101
