"""The gradient of one global batch, in shards.

The global batch is always split into V shards. A replica computes its V/R shards one after the other from the same
weights and the same non-trainable state and adds what they give: gradients, state, loss and metrics are **sums over
examples**, added in the order of `reduction`, inside the replica and then across replicas. Only the total is divided,
once, by the global weight, and only the total is handed to the optimizer.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from trainbox import determinism
from trainbox.fingerprint import fingerprint
from trainbox.learner import Batch, Feed, Learner, Tensors, call_with, on_host, same_on_all, seed_positions, values
from trainbox.penalties import add_penalty, regularized, weight_penalty
from trainbox.scaling import all_finite, next_state


def own_the_all_reduce(optimizer: keras.optimizers.Optimizer) -> None:
    """Keep Keras from adding the gradients over the replicas once more.

    Every replica has the total already. Keras would clip before it adds, and handing it the total on one replica and
    zeros on the others costs a second all-reduce of everything.
    """
    optimizer._all_reduce_sum_gradients = list


class TrainStep:
    """One optimizer step on one global batch, to be called inside a `tf.function`, outside `strategy.run`.

    The devices are the replicas of the learner's strategy. `towers` and `batch_split` use them in other ways, and have
    a `begin`, `_total` or `_apply` of their own.
    """

    def __init__(self, learner: Learner, feed: Feed, *, loss_scaling: bool, traced: bool = False) -> None:
        """`traced` steps give a fingerprint too. Raises UsageError if the loss does not give one value an example."""
        self._learner = learner
        self._feed = feed
        self.statistics, self.signature = learner.statistics, learner.signature(feed)
        self._loss_scaling = loss_scaling
        self.traced = traced
        self._seeds = seed_positions(learner.model)
        self._moving = self._find_moving_state()
        own_the_all_reduce(learner.optimizer)

    def begin(self) -> None:
        """What is to be done in front of a block of steps: nothing here."""

    def __call__(self, batch: Batch, scale_state: Any) -> tuple[Any, ...]:
        """Statistics of the batch (float32 [statistics]), whether the step was taken, the next loss-scale state, and of
        a traced step its fingerprint (int64).

        A step is always taken, but for float16, where an overflow in the total skips it on every replica.
        """
        strategy = self._learner.strategy
        gradients, state, statistics, finite = strategy.run(self._total, args=(batch, scale_state[0]))
        total = [same_on_all(strategy, tensor) for tensor in (*gradients, *state)] if self.traced else []
        statistics, taken = same_on_all(strategy, statistics), same_on_all(strategy, finite)
        if self._loss_scaling:
            tf.cond(taken, lambda: self._apply(gradients, state), lambda: None)
            scale_state = next_state(scale_state, taken)
        else:
            self._apply(gradients, state)
        return statistics, taken, scale_state, *self._fingerprints([*total, statistics], taken)

    def _fingerprints(self, computed: Tensors, taken: Any) -> Tensors:
        """Of what the step computed and of the weights that it left, or of these alone where it was skipped.

        What overflowed is left out because not every processor writes a NaN with the same bits.
        """
        if not self.traced:
            return []
        weights = values(self._learner.model.trainable_variables)
        return [fingerprint([tf.where(taken, fingerprint(computed), 0), *weights])]

    def _apply(self, gradients: Any, state: Any) -> None:
        self._learner.strategy.run(self._update, args=(gradients, state))

    def _total(self, batch: Batch, scale: Any) -> tuple[Tensors, Tensors, Any, Any]:
        """On one replica: mean gradients, averaged state and statistics of the whole global batch."""
        model = self._learner.model
        weights, state = values(model.trainable_variables), values(model.non_trainable_variables)

        def compute(shard: Any) -> Tensors:
            return self._shard(on_host(batch, shard), weights, state, scale)

        total = self._learner.replica_sums(compute, self._specs(weights, state))
        return self._mean(total, weights, state, scale)

    def _mean(self, total: Tensors, weights: Tensors, state: Tensors, scale: Any) -> tuple[Tensors, Tensors, Any, Any]:
        """From the sums over all shards to what `_total` gives."""
        gradients, moving, statistics = total[: len(weights)], total[len(weights) : -1], total[-1]
        examples = statistics[-1]
        gradients = [gradient / tf.cast(examples * scale, gradient.dtype) for gradient in gradients]
        gradients, statistics = self._add_weight_penalty(gradients, weights, statistics)
        shards = self._learner.plan.shards
        moving = [_mean(value, state[i].dtype, shards) for i, value in zip(self._moving, moving, strict=True)]
        return gradients, moving, statistics, all_finite(gradients) if self._loss_scaling else tf.constant(True)

    def _shard(self, batch: Batch, weights: Tensors, state: Tensors, scale: Any) -> Tensors:
        """Sums over one shard: a gradient for each weight, each moving state, and the statistics."""
        state = self._seeded(state, batch)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            new_state, statistics = self._learner.forward(self._feed, batch, weights, state, training=True)
            loss = statistics[0] * scale if self._loss_scaling else statistics[0]
        gradients = tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return self._summands(gradients, new_state, statistics)

    def _seeded(self, state: Tensors, batch: Batch) -> Tensors:
        """The non-trainable state that one shard's call begins with: it has seeds of its own."""
        state = list(state)
        for number, position in enumerate(self._seeds):
            state[position] = tf.cast(batch.seeds[number], state[position].dtype)
        return state

    def _summands(self, gradients: Tensors, new_state: Tensors, statistics: Tensors) -> Tensors:
        """What one shard gives, as `_specs` has it."""
        moving = [tf.cast(new_state[i], _sum_type(new_state[i].dtype)) for i in self._moving]
        return [*map(tf.convert_to_tensor, gradients), *moving, tf.stack(statistics)]

    def _add_weight_penalty(self, gradients: Tensors, weights: Tensors, statistics: Any) -> tuple[Tensors, Any]:
        if not regularized(self._learner.model):
            return gradients, statistics
        with tf.GradientTape() as tape:
            tape.watch(weights)
            penalty = weight_penalty(self._learner.model, weights)
        extra = tape.gradient(penalty, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        gradients = [gradient + more for gradient, more in zip(gradients, extra, strict=True)]
        return gradients, add_penalty(statistics, penalty)

    def _update(self, gradients: Tensors, moving: Tensors) -> None:
        """On one replica: take the optimizer's step and the new non-trainable state."""
        model = self._learner.model
        optimizer, average = self._learner.optimizer, self._learner.average
        optimizer.apply(gradients, model.trainable_variables)
        variables = [model.non_trainable_variables[i].value for i in self._moving]
        if average:
            variables += [variable.value for variable in average.variables]
            moving = moving + average.following(values(model.trainable_variables), optimizer.iterations.value)
        if variables:
            # An assignment in replica context would average over the replicas again.
            tf.distribute.get_replica_context().merge_call(_assign, args=(variables, moving))

    def _specs(self, weights: Tensors, state: Tensors) -> list[tf.TensorSpec]:
        specs = [tf.TensorSpec(weight.shape, weight.dtype) for weight in weights]
        specs += [tf.TensorSpec(state[i].shape, _sum_type(state[i].dtype)) for i in self._moving]
        return [*specs, tf.TensorSpec([len(self._learner.statistics)], tf.float32)]

    def _find_moving_state(self) -> list[int]:
        """Positions of the non-trainable variables that a training call assigns, seeds left out.

        Averaging the others too (frozen weights, constants) would let them drift: (a + a + a) / 3 is not always a.
        """
        model = self._learner.model
        found: list[int] = []

        def probe(indices: Any, source: tuple[Any, ...]) -> None:
            weights, state = values(model.trainable_variables), values(model.non_trainable_variables)
            inputs = self._learner.inputs(self._feed.fetch(source, indices)[0])
            _, new_state, _ = call_with(model, weights, state, inputs, training=True)
            found.extend(i for i, (old, new) in enumerate(zip(state, new_state, strict=True)) if new is not old)

        rows = tf.TensorSpec([self._learner.plan.rows], tf.int32)
        traced = tf.function(probe, autograph=False).get_concrete_function(rows, self.signature.source)
        if self.traced:
            determinism.refuse_layers(model, option="--reproducible", manner=" in an order of their own")
            determinism.refuse_random_operations(traced.graph)
        return [i for i in found if i not in self._seeds]


def _sum_type(dtype: Any) -> Any:
    """Integer state (counters) is added in float64, which has room for the sum of any 32-bit values."""
    return dtype if dtype.is_floating else tf.float64


def _mean(total: Any, dtype: Any, shards: int) -> Any:
    return tf.cast(total / tf.cast(shards, total.dtype), dtype)


def _assign(strategy: tf.distribute.Strategy, variables: list[Any], values: list[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(variable, lambda v, new: v.assign(new), args=(value,), group=False)
