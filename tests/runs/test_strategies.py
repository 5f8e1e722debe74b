"""Whole runs by every strategy, and what `trainbox compare` says of them."""

from __future__ import annotations

import pytest

WORDS = ("train", "--reproducible", "--logical-devices", "2", "--batch-size", "100", "--model", "mlp")
WORDS = (
    *WORDS,
    "--no-tensorboard",
    "--validation-split",
    "0.1",
    "--ema-momentum",
    "0.9",
    "--callbacks",
    "rate.py:rate",
)
# Every copy of the optimizer has to learn of a rate that a callback sets.
RATE = """
import keras


def rate(epochs):
    return [keras.callbacks.LearningRateScheduler(lambda epoch: 0.001 * (epoch + 1))]
"""


@pytest.fixture(scope="module")
def mirrored(place):
    """A straight run on two mirrored replicas."""
    (place.folder / "rate.py").write_text(RATE)
    command = place.trainbox(*WORDS, "--epochs", "2", "--strategy", "mirrored", "--run", "mirrored")
    assert (command.ended, command.err) == (0, "")
    return place.run("mirrored")


@pytest.mark.parametrize("strategy", ["towers", "batch-split"])
def test_a_run_has_the_bits_of_mirrored_replicas(place, mirrored, strategy):
    """Weights, metrics and the fingerprint of every step, as `compare` says."""
    command = place.trainbox(*WORDS, "--epochs", "2", "--strategy", strategy, "--run", strategy)
    assert (command.ended, command.err) == (0, "")
    assert place.run(strategy).same == mirrored.same
    compared = place.trainbox("compare", "mirrored", strategy)
    assert compared.ended == 0
    assert f"config.strategy  mirrored  {strategy}" in compared.out.partition("cannot alter the result")[2]
    assert "by its fingerprint\nsame bits: weights " in compared.out


def test_another_strategy_goes_on_with_a_run(place, mirrored):
    """From a single device to towers, all of which begin at the checkpoint."""
    alone = [word for word in WORDS if word not in ("--logical-devices", "2")]
    assert place.trainbox(*alone, "--epochs", "1", "--strategy", "one", "--run", "changed").ended == 0
    command = place.trainbox(*WORDS, "--epochs", "2", "--strategy", "towers", "--run", "changed")
    assert (command.ended, command.err) == (0, "")
    assert place.run("changed").result["weights"] == mirrored.result["weights"]


SYNCHRONIZED = """
import keras


def build(input_shape, num_classes):
    layers = keras.layers
    norm = layers.BatchNormalization(synchronized=True, name="norm")
    return keras.Sequential([keras.Input(input_shape), layers.Flatten(), norm, layers.Dense(num_classes)])
"""


@pytest.mark.parametrize("strategy", ["towers", "batch-split"])
def test_synchronized_statistics_need_mirrored_replicas(place, strategy):
    """They would silently be those of one shard."""
    (place.folder / "norm.py").write_text(SYNCHRONIZED)
    command = place.trainbox("train", "--strategy", strategy, "--epochs", "1", "--model", "norm.py:build")
    assert command.ended == 2
    assert command.complaint == (
        f"--strategy {strategy} does not go with the layer norm, whose statistics are synchronized over the replicas "
        "of tf.distribute alone; build it with synchronized=False (each shard then has its own)"
    )
