"""The user's own model and callbacks, from a folder of their own: trained, gone on with, evaluated and exported."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

NET = """
import keras
from keras import layers

from parts import head


class Net(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.body = [layers.Conv2D(8, 3, activation="relu"), layers.BatchNormalization(), layers.Flatten()]
        self.drop = layers.Dropout(0.2)
        self.head = head(classes)

    def call(self, images, training=False):
        for layer in self.body:
            images = layer(images, training=training) if layer is self.body[1] else layer(images)
        return self.head(self.drop(images, training=training))


def build(input_shape, num_classes):
    return Net(num_classes)
"""
PARTS = """
from keras import layers

def head(classes):
    return layers.Dense(classes)
"""
WATCH = """
import keras
import numpy as np

class Watch(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        with open("replicas", "a") as file:
            print(self.model.distribute_strategy.num_replicas_in_sync, file=file)

    def on_train_end(self, logs=None):
        images = np.random.default_rng(0).random((17, 8, 8, 1), np.float32)
        np.savez("seen.npz", images=images, probabilities=keras.ops.softmax(self.model(images, training=False)))

def watch():
    return [Watch()]
"""
# Another program, which knows nothing of trainbox.
SERVE = """
import sys
import numpy as np
import tensorflow as tf

serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
seen = np.load(sys.argv[2])
for rows in (1, 5, 17):
    served = serve(images=tf.constant(seen["images"][:rows]))["probabilities"].numpy()
    assert served.shape == (rows, 10)
    assert np.abs(served - seen["probabilities"][:rows]).max() < 1e-6
assert "trainbox" not in sys.modules
"""
TWO = ("--logical-devices", "2")


@pytest.fixture(scope="module")
def own(place):
    """A run of the user's subclassed model on two devices: two epochs, then a third under the eyes of a callback."""
    folder = place.folder / "own"
    folder.mkdir()
    (folder / "net.py").write_text(NET)
    (folder / "parts.py").write_text(PARTS)
    (folder / "watch.py").write_text(WATCH)
    words = ("train", "--run", "own", "--model", "own/net.py:build", *TWO)
    first = place.trainbox(*words, "--epochs", "2")
    assert (first.ended, first.err) == (0, "")
    second = place.trainbox(*words, "--epochs", "3", "--callbacks", "own/watch.py:watch")
    assert (second.ended, second.err) == (0, "")
    assert "no model.keras: Net, or a layer of it, has no get_config()" in second.out.splitlines()
    assert "going on from step 24 (2 of 3 epochs done)" in second.out.splitlines()
    return place.run("own")


def test_after_a_resume_the_model_is_on_all_replicas(place, own):
    """C9(c): restored into the strategy's scope, not beside it."""
    assert (place.folder / "replicas").read_text() == "2\n"
    assert own.result["step"] == 36


def test_no_byte_code_is_left_beside_the_users_files(place, own):
    """The folder may be read-only, or under version control."""
    assert sorted(path.name for path in (place.folder / "own").iterdir()) == ["net.py", "parts.py", "watch.py"]


@pytest.mark.parametrize("devices", ["1", "3"])
def test_any_number_of_devices_evaluates_it_alike(place, own, devices):
    """The numbers of the run's own test, from its checkpoint; standard output is JSON and nothing else."""
    command = place.trainbox("evaluate", "own", "--json", "--logical-devices", devices)
    measured = json.loads(command.out)
    assert command.ended == 0
    assert (measured["rows"], measured["step"]) == (359, 36)
    assert measured["accuracy"] == own.result["test/accuracy"]
    assert measured["loss"] == pytest.approx(own.result["test/loss"], abs=1e-6)


def test_the_export_predicts_the_same_in_plain_tensorflow(place, own):
    """H5: batches of 1, 5 and 17 images in another program, against what the model gave at the end of its training."""
    command = place.trainbox("export", "own", "--json")
    exported = json.loads(command.out)
    assert (command.ended, exported["step"], exported["keras"]) == (0, 36, None)
    served = subprocess.run(
        [sys.executable, "-c", SERVE, exported["saved_model"], "seen.npz"],
        cwd=place.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert served.returncode == 0, served.stderr
    assert np.load(place.folder / "seen.npz")["images"].shape == (17, 8, 8, 1)


def test_a_model_file_that_has_changed_is_refused(place, own):
    """To train, to evaluate and to export: the weights belong to the code that they were trained with."""
    file = place.folder / "own" / "net.py"
    try:
        file.write_text(NET.replace("0.2", "0.3"))
        words = ("train", "--run", "own", "--model", "own/net.py:build", *TWO, "--epochs", "4")
        for command in (place.trainbox(*words), place.trainbox("evaluate", "own"), place.trainbox("export", "own")):
            assert command.ended == 2
            assert "the file of --model own/net.py:build has changed; say it as it was" in command.complaint
    finally:
        file.write_text(NET)
