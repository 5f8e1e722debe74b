"""Data parallelism by hand, without `tf.distribute`: the towers of the old tutorials, made right.

Each device is a tower, with copies of its own of the weights, of the optimizer's variables and of the non-trainable
state. One step is five lines of thought:

1. The global batch is V shards, dealt evenly: each of R towers computes V/R of them, from its own copies.
2. Each tower adds up its shards' gradients. They are sums over examples, not means: the last batch of an epoch may
   leave one tower fewer examples than another, and the mean of means would then be another number.
3. The towers' sums meet on the first tower and are added pairwise.
4. The total is divided, once, by the number of examples of the global batch.
5. Every tower gets the result, and its own optimizer applies it to its own copies. All began alike and take the same
   step, so they stay alike, and no weight ever travels.

What travels is one gradient from each tower and one to each. The first tower's copies are the model's own variables, so
a checkpoint or a callback sees and changes these; the other towers are made like it again at the start of each block.
Evaluation is on the first device. TensorFlow runs the towers at the same time because nothing in the graph makes one
wait for another. Each has an optimizer of its own, made from the config of the first one's: Keras's `stateless_apply`,
which would serve all with one, is not there on TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trainbox.averaging import WeightAverage
from trainbox.learner import Batch, Feed, Learner, Tensors, on_host, values
from trainbox.reduction import pairwise, sum_shards
from trainbox.step import TrainStep, own_the_all_reduce


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A device with its own copy of everything that training changes."""

    device: str
    weights: Sequence[keras.Variable]
    state: Sequence[keras.Variable]
    optimizer: keras.optimizers.Optimizer
    average: WeightAverage | None

    @property
    def variables(self) -> list[keras.Variable]:
        """All its variables, in the same order on every tower."""
        average = self.average.variables if self.average else ()
        return [*self.weights, *self.state, *self.optimizer.variables, *average]


def first_tower(learner: Learner, device: str) -> Tower:
    """The tower whose variables are the learner's own."""
    model = learner.model
    return Tower(
        device=device,
        weights=model.trainable_variables,
        state=model.non_trainable_variables,
        optimizer=learner.optimizer,
        average=learner.average,
    )


def another_tower(first: Tower, device: str) -> Tower:
    """A tower with copies of the first one's variables, on a device of its own."""
    with tf.device(device):
        weights, state = _copies(first.weights), _copies(first.state)
        optimizer = type(first.optimizer).from_config(first.optimizer.get_config())
        optimizer.build(weights)
        average = first.average
        if average:
            average = WeightAverage(momentum=average.momentum, variables=tuple(_copies(average.variables)))
    own_the_all_reduce(optimizer)
    return Tower(device=device, weights=weights, state=state, optimizer=optimizer, average=average)


class TowerStep(TrainStep):
    """One optimizer step on one global batch, on a tower on each of `devices`.

    The learner's strategy is TensorFlow's default.
    """

    def __init__(self, learner: Learner, feed: Feed, *, devices: Sequence[str], **options: bool) -> None:
        """`options` are those of `TrainStep`, which see. Raises UsageError as it does."""
        super().__init__(learner, feed, **options)
        first = first_tower(learner, devices[0])
        self._towers = [first, *(another_tower(first, device) for device in devices[1:])]

    def begin(self) -> None:
        """Make all towers like the first, whose variables a checkpoint or a callback may have set."""
        first, *others = (tower.variables for tower in self._towers)
        for copies in others:
            for copy, variable in zip(copies, first, strict=True):
                copy.assign(variable.value)

    def _total(self, batch: Batch, scale: Any) -> tuple[Tensors, Tensors, Any, Any]:
        sums = [self._tower_sums(number, batch, scale) for number in range(len(self._towers))]
        first = self._towers[0]
        with tf.device(first.device):
            total = [pairwise(parts) for parts in zip(*sums, strict=True)]
            return self._mean(total, values(first.weights), values(first.state), scale)

    def _tower_sums(self, number: int, batch: Batch, scale: Any) -> Tensors:
        """The sums over the shards of one tower: numbers `number` · V/R and on."""
        tower, shards = self._towers[number], self._learner.plan.shards_per_replica
        with tf.device(tower.device):
            weights, state = values(tower.weights), values(tower.state)

            def compute(shard: Any) -> Tensors:
                return self._shard(on_host(batch, number * shards + shard), weights, state, scale)

            return sum_shards(compute, shards, self._specs(weights, state))

    def _apply(self, gradients: Tensors, state: Tensors) -> None:
        for tower in self._towers:
            with tf.device(tower.device):
                tower.optimizer.apply([tf.identity(gradient) for gradient in gradients], tower.weights)
                for position, value in zip(self._moving, state, strict=True):
                    tower.state[position].assign(value)
                if tower.average:
                    following = tower.average.following(values(tower.weights), tower.optimizer.iterations.value)
                    for variable, value in zip(tower.average.variables, following, strict=True):
                        variable.assign(value)


def _copies(variables: Sequence[keras.Variable]) -> list[keras.Variable]:
    """New variables with the same values, on the device of the moment."""
    copies = []
    for variable in variables:
        copy = keras.Variable(variable.numpy(), dtype=variable.dtype, trainable=variable.trainable, name=variable.name)
        copy.constraint = variable.constraint
        copies.append(copy)
    return copies
