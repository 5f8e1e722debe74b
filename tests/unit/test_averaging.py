"""The moving average of the weights follows Keras's rule."""

import keras
import numpy as np
import tensorflow as tf

from trainbox.averaging import WeightAverage


def dense():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.set_weights([np.full((3, 2), 0.3, np.float32), np.full(2, -0.7, np.float32)])
    return model


def test_it_is_the_average_that_keras_keeps():
    """Step by step, to the bit, and from the first step's weights on."""
    model = dense()
    optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9)
    optimizer.build(model.trainable_variables)
    average = WeightAverage.of(model, momentum=0.9)
    for _ in range(3):
        optimizer.apply([tf.ones((3, 2)), tf.ones(2)], model.trainable_variables)
        weights = [tf.convert_to_tensor(weight) for weight in model.trainable_variables]
        for variable, value in zip(
            average.variables, average.following(weights, optimizer.iterations.value), strict=True
        ):
            variable.assign(value)
        theirs = [variable.numpy().tolist() for variable in optimizer._model_variables_moving_average]
        assert [variable.numpy().tolist() for variable in average.variables] == theirs


def test_it_takes_the_place_of_the_weights():
    """For a model that is exported."""
    model, other = dense(), dense()
    other.set_weights([np.ones((3, 2), np.float32), np.ones(2, np.float32)])
    WeightAverage.of(other, momentum=0.5).give_to(model)
    assert [weight.tolist() for weight in model.get_weights()] == [[[1.0, 1.0]] * 3, [1.0, 1.0]]
