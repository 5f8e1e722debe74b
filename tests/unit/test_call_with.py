"""A model is called with given values of its variables as Keras itself would call it."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from trainbox import randomness
from trainbox.learner import call_with, seed_positions, values

IMAGES = np.ones((4, 8), np.float32)


class WithoutTraining(keras.Model):
    """A subclassed model whose `call` takes no `training`."""

    def __init__(self):
        super().__init__()
        self.dropout = layers.Dropout(0.5, seed=1)
        self.norm = layers.BatchNormalization(momentum=0.5)

    def call(self, inputs):
        return self.norm(self.dropout(inputs))


def call(model, weights, *, training):
    outputs, state, _ = call_with(model, weights, values(model.non_trainable_variables), IMAGES, training=training)
    return outputs.numpy(), state


def test_layers_learn_that_this_is_training():
    """Dropout and batch statistics work in a model that does not take `training`, and only in training."""
    model = WithoutTraining()
    model(IMAGES)
    weights, before = values(model.trainable_variables), model.get_weights()
    outputs, state = call(model, weights, training=True)
    assert len(np.unique(outputs)) > 1
    assert not np.array_equal(state[0], before[2])
    assert len(np.unique(call(model, weights, training=False)[0])) == 1
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), before, strict=True))


def test_inputs_get_the_precision_of_the_computation():
    """A subclassed model in bfloat16 sees bfloat16, as it does in Keras."""
    seen = []

    class Half(keras.Model):
        def call(self, inputs):
            seen.append(inputs.dtype)
            return inputs

    call_with(Half(dtype="mixed_bfloat16"), [], [], IMAGES, training=True)
    assert seen == [tf.bfloat16]


def test_the_given_values_are_computed_with():
    """The variables keep theirs."""
    model = keras.Sequential([keras.Input((8,)), layers.Dense(1)])
    before = model.get_weights()
    outputs, _ = call(model, [tf.ones((8, 1)), tf.constant([0.5])], training=True)
    assert outputs.tolist() == [[8.5]] * 4
    assert all(np.array_equal(a, b) for a, b in zip(model.get_weights(), before, strict=True))


def test_losses_of_layers_come_once_and_regularizers_last():
    """What a layer adds, then the penalty of each regularized weight."""
    model = keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(1, kernel_initializer="ones", kernel_regularizer=keras.regularizers.L2(0.5)),
            layers.ActivityRegularization(l1=0.25),
        ]
    )
    state = values(model.non_trainable_variables)
    _, _, losses = call_with(model, values(model.trainable_variables), state, IMAGES, training=True)
    assert [float(loss) for loss in losses] == [0.25 * 8, 0.5 * 8]


def test_equal_dropout_layers_draw_masks_of_their_own():
    """Two steps of two shards of two layers that share a seed: eight masks, no two alike."""
    inputs = keras.Input((64,))
    model = keras.Model(inputs, [layers.Dropout(0.5, seed=7)(inputs), layers.Dropout(0.5, seed=7)(inputs)])
    positions = seed_positions(model)
    assert len(positions) == 2
    seeds = randomness.shard_seeds(seed=1, first_step=0, steps=2, shards=2, variables=2)
    masks = set()
    for step in range(2):
        for shard in range(2):
            state = values(model.non_trainable_variables)
            for number, position in enumerate(positions):
                state[position] = tf.cast(seeds[step, shard, number], state[position].dtype)
            outputs, _, _ = call_with(model, [], state, np.ones((1, 64), np.float32), training=True)
            masks |= {mask.numpy().tobytes() for mask in outputs}
    assert len(masks) == 8
