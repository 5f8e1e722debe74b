"""What --reproducible cannot keep is refused, naming it, before anything is trained."""

from __future__ import annotations

import pytest

MODELS = """
import keras, tensorflow as tf
layers = keras.layers

class TensorFlowNoise(layers.Layer):
    def call(self, x):
        return x + tf.random.normal(tf.shape(x))

class HiddenNoise(layers.Layer):
    def call(self, x):
        return x + keras.random.normal(tf.shape(x))

class Clock(layers.Layer):
    def call(self, x, training=False):
        return x + tf.cast(tf.timestamp(), tf.float32) if training else x

def build(layer, input_shape, num_classes):
    return keras.Sequential([keras.Input(input_shape), layer, layers.Flatten(), layers.Dense(num_classes)])

def tensorflow_noise(input_shape, num_classes):
    return build(TensorFlowNoise(name="noise"), input_shape, num_classes)

def hidden_noise(input_shape, num_classes):
    return build(HiddenNoise(name="noise"), input_shape, num_classes)

def clock(input_shape, num_classes):
    return build(Clock(name="clock"), input_shape, num_classes)

def synchronized(input_shape, num_classes):
    return build(layers.BatchNormalization(synchronized=True, name="norm"), input_shape, num_classes)
"""
GENERATOR = "keep a keras.random.SeedGenerator as an attribute of the layer and pass it as seed="
REFUSED = {
    "synchronized": "--reproducible does not go with the layer norm, whose statistics are synchronized over the "
    "replicas in an order of their own; build it with synchronized=False (each shard then has its own)",
    "tensorflow_noise": "--reproducible does not go with RandomStandardNormal (in ",
    "hidden_noise": "the model draws random numbers from a seed that is not among its variables, so they would be the "
    f"same in every step; {GENERATOR}",
    "clock": "--reproducible does not go with an operation of the model (",
}


@pytest.mark.parametrize("model", REFUSED)
def test_a_model_whose_bits_cannot_be_kept_is_refused(place, model):
    """A layer across replicas, random numbers without a seed in the model, an operation that is never the same."""
    (place.folder / "models.py").write_text(MODELS)
    command = place.trainbox("train", "--reproducible", "--epochs", "1", "--model", f"models.py:{model}")
    assert command.ended == 2
    assert command.complaint.startswith(REFUSED[model])
    assert command.complaint.endswith((GENERATOR, "has its own)", "or leave --reproducible out"))


def test_the_same_models_train_where_bits_are_not_promised(place):
    """Random numbers of TensorFlow's own move on there; a hidden seed of Keras would not, and is refused."""
    (place.folder / "models.py").write_text(MODELS)
    words = ("train", "--epochs", "1", "--model")
    assert place.trainbox(*words, "models.py:tensorflow_noise").ended == 0
    assert place.trainbox(*words, "models.py:hidden_noise").ended == 2


def test_shards_are_never_left_to_the_machine(place):
    """`auto` would follow the number of devices."""
    command = place.trainbox("train", "--reproducible", "--shards", "auto")
    assert command.ended == 2
    assert command.complaint == "--shards is 'auto'; it must be a whole number, from 1 to 4096"
