"""What training does to a shard, from its seeds to the loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainbox import changes, objective
from trainbox.objective import Targets
from trainbox.practice import Practice
from trainbox.randomness import shard_seeds

# Of step 1 and shard 1 of a run with seed 1.
SEEDS = tf.constant(shard_seeds(seed=1, first_step=1, steps=1, shards=2, variables=0, practice=3)[0, 1])
IMAGES = tf.constant(np.arange(36, dtype=np.float32).reshape(3, 3, 4, 1) / 64)
LABELS = tf.constant([0, 1, 2])
WEIGHTS = np.ones(3, np.float32)


def practised(**words):
    return Practice(**words)(IMAGES, LABELS, WEIGHTS, SEEDS, host="CPU:0")


def test_a_seed_gives_these_pixels():
    """They are part of every recorded result, and may not change between versions."""
    images, targets = practised(changes=changes.parse("flip,crop:1"))
    assert (images.numpy()[..., 0] * 64).tolist() == [
        [[5, 4, 5, 6], [1, 0, 1, 2], [5, 4, 5, 6]],
        [[19, 18, 17, 16], [23, 22, 21, 20], [19, 18, 17, 16]],
        [[29, 28, 29, 30], [25, 24, 25, 26], [29, 28, 29, 30]],
    ]
    assert targets == Targets(labels=LABELS)


def test_a_seed_gives_this_mixture():
    """Share, partners and pixels."""
    images, targets = practised(mixup=0.4)
    assert targets.share.numpy() == np.float32(0.5266294479370117)
    assert targets.others.numpy().tolist() == [2, 0, 1]
    share = 0.5266294479370117
    assert images.numpy() == pytest.approx(share * IMAGES.numpy() + (1 - share) * IMAGES.numpy()[[2, 0, 1]], abs=1e-7)


def test_nothing_is_drawn_where_only_classes_are_weighted():
    """Inputs of any shape go through as they are."""
    practice = Practice(class_weights=(1.0, 2.0, 3.0))
    assert practice.seeds == 0
    rows = tf.zeros([3, 5])
    inputs, targets = practice(rows, LABELS, WEIGHTS, SEEDS[:0], host="CPU:0")
    assert inputs is rows
    assert targets == Targets(labels=LABELS, class_weights=(1.0, 2.0, 3.0))


def test_the_loss_of_a_mixture_is_the_weighted_sum_of_two():
    """By hand, with a factor for each of the two labels; accuracy counts the label of the larger share."""
    outputs = np.float32([[2.0, 0.0, -1.0], [0.5, 0.1, 0.2], [0.0, 3.0, 1.0]])
    own, others, factors = [0, 1, 2], [2, 0, 1], np.array([1.0, 2.5, 0.5])
    entropy = -np.log(np.exp(outputs.astype(np.float64)) / np.exp(outputs.astype(np.float64)).sum(1, keepdims=True))
    rows = np.arange(3)
    of = objective.classification(from_logits=True)
    for weights in (None, tuple(factors)):
        factor = factors if weights else np.ones(3)
        for share in (0.7, 0.3):
            targets = Targets(
                labels=tf.constant(own), others=tf.constant(others), share=tf.constant(share), class_weights=weights
            )
            wanted = share * factor[own] * entropy[rows, own] + (1 - share) * factor[others] * entropy[rows, others]
            assert targets.loss(of.loss, outputs).numpy() == pytest.approx(wanted, abs=1e-6)
            assert targets.counted.numpy().tolist() == (own if share == 0.7 else others)


def test_numbers_to_predict_are_mixed_themselves():
    """There is one target then, and nothing else in the loss."""
    labels = tf.constant([1.0, 2.0, 4.0])
    _, targets = Practice(mixup=0.4)(IMAGES, labels, WEIGHTS, SEEDS, host="CPU:0")
    share = 0.5266294479370117
    wanted = share * np.array([1.0, 2.0, 4.0]) + (1 - share) * np.array([4.0, 1.0, 2.0])
    assert targets.labels.numpy() == pytest.approx(wanted, abs=1e-6)
    assert (targets.others, targets.share) == (None, None)


def test_class_weights_train_as_those_of_keras_fit():
    """One step of SGD on one device: the same weights and the same loss to 1e-6; divided by rows, not by weights."""
    from trainbox import blocks, plan, scaling
    from trainbox.config import RunConfig
    from trainbox.data import pipeline
    from trainbox.jobs import looping
    from trainbox.learner import Batch, Learner

    factors = {0: 3.0, 1: 0.25, 2: 1.0}
    generator = np.random.default_rng(2)
    inputs, labels = generator.random((8, 4, 4, 1)).astype(np.float32), np.int32([0, 1, 2, 0, 1, 0, 0, 1])

    def made():
        keras.utils.set_random_seed(6)
        return keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])

    model, reference = made(), made()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    reference.compile(keras.optimizers.SGD(0.5), loss)
    history = reference.fit(inputs, labels, batch_size=8, shuffle=False, class_weight=factors, verbose=0).history
    config = RunConfig(batch_size=8, epochs=1)
    chosen = plan.make(config, replicas=1, examples=8)
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build(model.trainable_variables)
    learner = Learner(
        strategy=tf.distribute.get_strategy(), model=model, optimizer=optimizer, plan=chosen,
        objective=objective.classification(from_logits=True), practice=Practice(class_weights=(3.0, 0.25, 1.0)),
    )  # fmt: skip
    feed = pipeline.ResidentFeed(pipeline.Split(inputs=inputs, labels=labels), chosen)
    block = blocks.train_block(looping.training_step(config, learner, feed))
    indices, weights = pipeline.deal(np.arange(8, dtype=np.int32), chosen, first_step=0, steps=1)
    state = np.array(scaling.initial_state("float32"), np.float32)
    statistics, *_ = block(Batch(indices, weights, np.zeros((1, 1, 0, 2), np.uint32)), state)
    assert statistics.numpy()[0, 0] / 8 == pytest.approx(history["loss"][0], abs=1e-6)
    for mine, theirs in zip(model.get_weights(), reference.get_weights(), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
