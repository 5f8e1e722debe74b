"""What cannot be done is told in one line on standard error, with its exit code, and nothing good is lost."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

CALLBACKS = """
import keras

def failing():
    def fail(epoch, logs):
        raise ValueError("no\\nluck")
    return [keras.callbacks.LambdaCallback(on_epoch_end=fail)]

def leaving():
    return [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: exit(0))]

def one():
    return keras.callbacks.TerminateOnNaN()
"""
MODELS = """
import keras
from keras import layers

def raising(input_shape, num_classes):
    raise RuntimeError("no luck")

def nothing(input_shape, num_classes):
    pass

def wide(input_shape, num_classes):
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), layers.Dense(num_classes + 1)])

def infinite(input_shape, num_classes):
    big = layers.Rescaling(1e30)
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), big, layers.Dense(num_classes)])
"""


@pytest.fixture(scope="module", autouse=True)
def own_files(place):
    """The user's files, and a file where a folder should be."""
    (place.folder / "callbacks.py").write_text(CALLBACKS)
    (place.folder / "models.py").write_text(MODELS)
    (place.folder / "file").touch()


# How a command that cannot go on ends, and how its line begins. Those of WORDS are told before any data are read.
WORDS = [
    (2, "--model cnnn", "there is no model 'cnnn'; did you mean cnn?"),
    (2, "--model net.py:build", "--model: there is no file {folder}/net.py; give the path of a Python file"),
    (2, "--optimizer adma", "--optimizer is 'adma'; it must be one of sgd, adam, adamw, rmsprop; did you mean adam?"),
    (2, "--epoch 3", "no such option: --epoch; did you mean --epochs? (see trainbox train --help)"),
    (2, "--callbacks callbacks.py:two", "--callbacks: {folder}/callbacks.py does not define two; it has "),
    (2, "--output-dir file", "cannot write file/x: a file is in the way; move it, or choose another --run"),
    (
        2,
        "--output-dir /proc/runs",
        "cannot write /proc/runs/x: No such file or directory; mount or choose another folder",
    ),
    (
        3,
        "--device gpu",
        "--device gpu: no GPU on this machine, no NVIDIA driver answers; --device cpu trains on the CPU",
    ),
    (
        3,
        "--device auto --gpus 2",
        "--gpus 2: no GPU on this machine, no NVIDIA driver answers; --device cpu trains on ",
    ),
    (2, "--device auto --logical-devices 2", "--logical-devices needs --device cpu"),
    (
        4,
        "--dataset Digits!",
        "'Digits!' is not the name of a data set: names are written like mnist, emnist/balanced or ",
    ),
]
RUNS = [
    (
        2,
        "--warmup-epochs 2 --epochs 2",
        "--warmup-epochs 2 is 46 steps and the run has 46; use fewer, or more --epochs",
    ),
    (2, "--model models.py:raising", "--model models.py:raising failed at {folder}/models.py:6: RuntimeError: no luck"),
    (2, "--model models.py:nothing", "--model models.py:nothing returned None; it must return a keras.Model of Keras "),
    (2, "--model models.py:wide", "--model models.py:wide: for rows of shape (8, 8, 1) the model's output is shape "),
    (2, "--callbacks callbacks.py:one", "--callbacks callbacks.py:one returned <keras.src.callbacks.terminate_on_nan."),
    (
        1,
        "--callbacks callbacks.py:failing",
        "a callback failed in on_epoch_end (ValueError: no luck); correct it, then ",
    ),
    (1, "--callbacks callbacks.py:leaving", "a callback failed in on_epoch_end (SystemExit: 0); correct it, then the "),
    (
        5,
        "--learning-rate 1e30",
        "the loss is nan at step 2 (epoch 1); nothing is saved yet; lower --learning-rate, clip with ",
    ),
    (
        5,
        "--model models.py:infinite --precision float16 --batch-size 720",
        "no step of the epoch had a finite loss at ",
    ),
]


@pytest.mark.parametrize(("code", "words", "line"), WORDS)
def test_words_that_cannot_be_followed_are_told_before_anything_is_read(place, code, words, line):
    """One line and its exit code, before data or TensorFlow."""
    command = place.trainbox("train", "--run", "x", *shlex.split(words))
    assert command.ended == code
    assert command.complaint.startswith(line.format(folder=place.folder))
    assert "data:" not in command.out


@pytest.mark.parametrize(("code", "words", "line"), RUNS)
def test_a_run_that_fails_is_told_in_one_line(place, code, words, line):
    """What only the data, the model or the training can show; the run's name stays free for a better try."""
    command = place.trainbox("train", "--run", "y", *shlex.split(words))
    assert command.ended == code
    assert command.complaint.startswith(line.format(folder=place.folder))
    assert not place.run("y").checkpoints


def test_a_run_that_diverges_keeps_its_last_good_checkpoint(place):
    """C2: exit 5 each time the command is said, and the checkpoint can still be evaluated."""
    (place.folder / "rates.py").write_text(
        "import keras\n\ndef rates():\n"
        "    return [keras.callbacks.LearningRateScheduler(lambda epoch: 1e30 if epoch == 2 else 1e-3)]\n"
    )
    for _ in range(2):
        command = place.trainbox("train", "--run", "diverging", "--callbacks", "rates.py:rates", "--epochs", "5")
        assert command.ended == 5
        assert command.complaint.startswith("the loss is nan at step 48 (epoch 3); the last good checkpoint is kept; ")
        assert place.run("diverging").steps == [46, 23]
    assert place.trainbox("evaluate", "diverging").ended == 0


def test_float16_that_overflows_without_end_has_diverged(place):
    """Skipping every step is no training: exit 5 at the step after the fifteenth halving of the loss scale."""
    command = place.trainbox("train", "--run", "overflow", "--precision", "float16", "--learning-rate", "1e30")
    assert command.ended == 5
    assert command.complaint.startswith(
        "a gradient is not finite in float16 without any loss scaling at step 17 (epoch 1); "
    )
    assert not place.run("overflow").checkpoints


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_ends_the_run_and_loses_nothing(place, tmp_path):
    """Exit 1 naming the file; with more room the same command goes on from the last checkpoint to the same end."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", tmp_path], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    words = ("train", "--run", "full", "--epochs", "4", "--output-dir", str(tmp_path))
    try:
        full = place.trainbox(*words)
        assert (full.ended, full.complaint) == (
            1,
            f"cannot write {tmp_path}/full/checkpoints/step-0000000069.safetensors: No space left on device; free some "
            "space and say the same command again",
        )
        left = sorted(path.name for path in (tmp_path / "full").rglob("*.safetensors*"))
        assert left == ["step-0000000023.safetensors", "step-0000000046.safetensors"]
        subprocess.run(["mount", "-o", "remount,size=10m", tmp_path], check=True)
        more = place.trainbox(*words)
        assert (more.ended, more.err) == (0, "")
        assert "going on from step 46 (2 of 4 epochs done)" in more.out.splitlines()
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_closed_pipe_does_not_end_the_run(place):
    """`trainbox train | head -1`: the display falls silent with one line, and the run is trained to its end."""
    command = f"{shlex.join([sys.executable, '-m', 'trainbox'])} train --run pipe --epochs 1 --device cpu | head -1"
    environ = os.environ | {"TRAINBOX_DATA_DIR": str(place.data_dir)}
    script = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(script, cwd=place.folder, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "run: pipe, in output/pipe\n")
    assert done.stderr == "trainbox: standard output cannot be written (Broken pipe); the run goes on\n"
    assert place.run("pipe").result["epochs_done"] == 1


def test_an_infinite_gradient_on_one_replica_ends_the_run(place):
    """In float32 exit 5, and nothing bad is saved: the gradient of a few rows is infinite, their losses are not."""
    (place.folder / "planted.py").write_text(
        "import keras, tensorflow as tf\n"
        "@tf.custom_gradient\n"
        "def plant(x):\n"
        "    ink = tf.reduce_sum(x, [1, 2, 3], keepdims=True)\n"
        "    return x, lambda upstream: tf.where(ink > 25.0, float('inf'), upstream)\n"
        "class Plant(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return plant(x)\n"
        "def make(input_shape, num_classes):\n"
        "    layers = keras.layers\n"
        "    ink = layers.Conv2D(1, 1, kernel_initializer='ones')\n"
        "    last = [layers.Flatten(), layers.Dense(num_classes)]\n"
        "    return keras.Sequential([keras.Input(input_shape), ink, Plant(), *last])\n"
    )
    words = ("--model", "planted.py:make", "--logical-devices", "2", "--batch-size", "16")
    command = place.trainbox("train", "--run", "planted", *words)
    assert command.ended == 5
    assert re.match(r"the loss is nan at step \d+ \(epoch 1\); nothing is saved yet; lower ", command.complaint)
    assert not place.run("planted").checkpoints
