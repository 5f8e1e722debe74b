"""Optimizers by name and the exact learning rate of every step."""

import math

import keras
import numpy as np
import pytest

from trainbox import optimizers
from trainbox.config import RunConfig
from trainbox.errors import UsageError


def build(*, steps_per_epoch=10, epochs=4, **options):
    config = RunConfig(epochs=epochs, **options)
    return optimizers.build(config, steps_per_epoch=steps_per_epoch, total_steps=steps_per_epoch * epochs)


def rates(steps, **options):
    schedule = build(**options)._learning_rate
    return [float(schedule(step)) for step in steps]


def stepped(optimizer, gradients):
    """The value of one weight, 1.0 at first, after a step with each of the gradients."""
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor([gradient])], [weight])
    return float(weight.numpy()[0])


def float32(values):
    return [float(np.float32(value)) for value in values]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", keras.optimizers.SGD),
        ("adam", keras.optimizers.Adam),
        ("adamw", keras.optimizers.AdamW),
        ("rmsprop", keras.optimizers.RMSprop),
    ],
)
def test_every_name_is_keras_own_class(name, kind):
    """The options reach Keras as they are."""
    optimizer = build(optimizer=name, learning_rate=0.25, weight_decay=0.5, clip_norm=2.0)
    assert type(optimizer) is kind
    config = optimizer.get_config()
    assert (config["learning_rate"], config["weight_decay"], config["clipnorm"]) == (0.25, 0.5, 2.0)
    assert build(optimizer=name, global_clip_norm=3).global_clipnorm == 3


@pytest.mark.parametrize("name", ["sgd", "rmsprop"])
def test_momentum_reaches_the_optimizers_that_have_it(name):
    """0 is a number like any other, for which Keras wants a float."""
    assert build(optimizer=name, momentum=0.9).momentum == 0.9
    assert build(optimizer=name, momentum=0).momentum == 0.0


def test_weight_decay_is_times_the_learning_rate():
    """w - w·wd·lr, then the gradient's step: 1 - 1·0.5·0.25 - 0.25·2 = 0.375."""
    assert stepped(build(optimizer="sgd", learning_rate=0.25, weight_decay=0.5), [2.0]) == 0.375


def test_clipping_by_norm():
    """A gradient of norm 8 is cut to 2: 1 - 0.25·2 = 0.5."""
    assert stepped(build(optimizer="sgd", learning_rate=0.25, clip_norm=2), [8.0]) == 0.5
    assert stepped(build(optimizer="sgd", learning_rate=0.25, global_clip_norm=2), [8.0]) == 0.5


def test_a_constant_rate_is_a_plain_variable():
    """Keras's callbacks can set it."""
    optimizer = build(learning_rate=0.5)
    optimizer.learning_rate = 0.125
    assert float(optimizer.learning_rate) == 0.125


def test_warm_up_rises_in_a_straight_line():
    """From 0 at step 0 to the peak at the end of 2 epochs of 10 steps, and stays there."""
    assert rates([0, 1, 10, 19, 20, 39], learning_rate=0.5, warmup_epochs=2) == float32(
        [0, 0.5 / 20, 0.25, 0.5 * 19 / 20, 0.5, 0.5]
    )


def test_cosine_ends_in_zero():
    """Half a period from the peak to 0 at the end of the run, and 0 from then on."""
    expected = [0.5 * (1 + math.cos(math.pi * step / 40)) / 2 for step in (0, 1, 20, 39)]
    assert rates([0, 1, 20, 39, 40, 50], learning_rate=0.5, schedule="cosine") == float32([*expected, 0, 0])


def test_cosine_begins_after_the_warm_up():
    """With 10 of 40 steps of warm-up the half period has 30 steps."""
    expected = [0, 0.5 * 9 / 10, 0.5, 0.5 * (1 + math.cos(math.pi / 30)) / 2, 0.25, 0]
    assert rates([0, 9, 10, 11, 25, 40], learning_rate=0.5, schedule="cosine", warmup_epochs=1) == float32(expected)


def test_step_decay_drops_at_whole_multiples():
    """A tenth every 1.5 epochs (15 steps), counted from the beginning, under a warm-up too."""
    options = {"learning_rate": 0.5, "schedule": "step", "decay_epochs": 1.5, "decay_factor": 0.1}
    assert rates([0, 14, 15, 29, 30], **options) == float32([0.5, 0.5, 0.05, 0.05, 0.5 * 0.1**2])
    assert rates([14, 15, 20], warmup_epochs=2, **options) == float32([0.5 * 14 / 20, 0.05 * 15 / 20, 0.05])


def test_an_optimizer_asks_for_its_own_step():
    """Steps 0, 1 and 2 of a warm-up of 4: 1 - (0 + 0.25 + 0.5)·0.5 = 0.625."""
    optimizer = build(optimizer="sgd", learning_rate=1, warmup_epochs=2, steps_per_epoch=2)
    assert stepped(optimizer, [0.5] * 3) == 0.625


@pytest.mark.parametrize("options", [{"warmup_epochs": 4}, {"warmup_epochs": 9, "schedule": "cosine"}])
def test_a_warm_up_as_long_as_the_run_is_refused(options):
    """The peak would never be reached."""
    with pytest.raises(UsageError) as raised:
        build(**options)
    epochs = options["warmup_epochs"]
    assert str(raised.value) == (
        f"--warmup-epochs {epochs} is {epochs * 10} steps and the run has 40; use fewer, or more --epochs"
    )


def test_a_schedule_survives_serialization():
    """Keras can write the optimizer down and build the same one again."""
    options = {"schedule": "step", "warmup_epochs": 1, "decay_epochs": 2, "decay_factor": 0.3}
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(build(**options)))
    steps = range(40)
    assert [float(copy._learning_rate(step)) for step in steps] == rates(steps, **options)
