"""A first step that takes its time: what is said while nothing seems to happen."""

OWN = """
import time
from pathlib import Path

import keras
import tensorflow as tf
from keras import layers

LOG = Path("output/waiting/train.log")


class Waiting(layers.Layer):
    # The first step waits until somebody complains of it, or for a minute.

    def call(self, images):
        with tf.control_dependencies([tf.py_function(self.wait, [], [])]):
            return tf.identity(images)

    def wait(self):
        end = time.monotonic() + 60
        said = LOG.read_text()
        while "batch: " in said and "in the first step" not in said and time.monotonic() < end:
            time.sleep(0.05)
            said = LOG.read_text()


def net(input_shape, num_classes):
    return keras.Sequential([keras.Input(input_shape), Waiting(), layers.Flatten(), layers.Dense(num_classes)])
"""


def test_a_first_step_that_hangs_is_told_and_goes_on(place):
    """A real model that waits inside a step: where it is, once, and the run ends well."""
    (place.folder / "own.py").write_text(OWN)
    words = ("--model", "own.py:net", "--epochs", "1", "--first-step-seconds", "0.4", "--logical-devices", "2")
    command = place.trainbox("train", "--run", "waiting", *words)
    assert (command.wait(), command.err) == (0, "")
    told = [line for line in command.out.splitlines() if "no first step yet: in the first step" in line]
    head = (
        "note: no first step yet: in the first step, with the loading of its kernels and the first all-reduce for 0.4 s"
    )
    assert len(told) == 1
    assert told[0].partition(";")[0] == head
    assert command.out.count("nothing is wrong if the CPU is busy") == 1


def test_a_first_step_that_comes_is_not_spoken_of(place):
    """Nor is Keras's fit, whose first batch is watched too."""
    for name, engine in (("quick", "trainbox"), ("fit", "fit")):
        command = place.trainbox("train", "--run", name, "--model", "mlp", "--epochs", "1", "--engine", engine)
        assert (command.wait(), command.err) == (0, "")
        assert "no first step" not in command.out
    assert not any(name.startswith("gpu/") for line in place.run("quick").lines for name in line)
    assert place.run("quick").result["speed"]["bound"] == "unknown"
    assert "speed" not in place.run("fit").result
