"""What every step works on: the model and how it is fed, and the sums over the shards of a global batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import keras
import tensorflow as tf

from trainbox import determinism
from trainbox.agreement import Agreement, Alone
from trainbox.averaging import WeightAverage
from trainbox.errors import UsageError
from trainbox.normalisation import Normalisation
from trainbox.objective import Objective, Targets
from trainbox.penalties import activity_penalties_masked, regularized
from trainbox.plan import Plan
from trainbox.practice import Practice
from trainbox.reduction import gather_and_add, sum_shards

Tensors = list[Any]
HOST = "CPU:0"


class Feed(Protocol):
    """Where rows come from, in the order that it is told, as global batches of its `plan`.

    `begin` takes row numbers, int32 [examples], and the step to begin from. `take` gives the next global batches, at
    most as many as asked for: tensors as `specs` say, which hold the rows of just these batches (none where all rows
    are at hand), positions int32 and weights float32, both [steps, V, rows]. Inside a graph `fetch` takes these tensors
    and positions [n], and gives inputs [n, …] in their own type and labels [n]. `numbered` gives the positions of
    rows where all are at hand. `close` ends what runs ahead.
    """

    plan: Plan
    specs: tuple[tf.TensorSpec, ...]

    def begin(self, order: Any, *, first_step: int) -> None: ...

    def take(self, steps: int) -> tuple[tuple[Any, ...], Any, Any]: ...

    def numbered(self, order: Any) -> Any: ...

    def fetch(self, source: tuple[Any, ...], indices: Any) -> tuple[Any, Any]: ...

    def close(self) -> None: ...


class Batch(NamedTuple):
    """One global batch by its rows' positions, or a block of them with one more dimension in front.

    `indices` int32 [V, rows], `weights` float32 [V, rows] (spare rows 0), `seeds` uint32 [V, seeds, 2]: one for each
    seed variable of the model, then those of the learner's `practice`. `source` are the tensors that a feed hands out
    with them, those of the whole block.
    """

    indices: Any
    weights: Any
    seeds: Any
    source: tuple[Any, ...] = ()

    def cut(self, number: Any) -> Batch:
        """One batch of a block, or one shard of a batch."""
        indices, weights, seeds = (tf.gather(part, number) for part in (self.indices, self.weights, self.seeds))
        return Batch(indices, weights, seeds, self.source)


def scaled(rows: Any) -> Any:
    """Rows in their own type as float32: bytes of images in [0, 1], anything else as it is."""
    return tf.cast(rows, tf.float32) / 255.0 if rows.dtype == tf.uint8 else tf.cast(rows, tf.float32)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Model, optimizer and objective, built in the scope of `strategy`, and how a batch is dealt to them.

    `gives_logits` tells whether the model's outputs are logits or probabilities. Where there is an `average` of the
    weights, evaluation computes with it. `to_inputs` turns rows in their own type into float32; in training `practice`
    changes these, and `normalisation` makes of them what the model takes. With an `agreement` of several workers,
    `ordered` keeps their sums to the one tree; TensorFlow's own way has another order.
    """

    strategy: tf.distribute.Strategy
    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    objective: Objective
    plan: Plan
    gives_logits: bool = True
    average: WeightAverage | None = None
    to_inputs: Callable[[Any], Any] = scaled
    practice: Practice | None = None
    normalisation: Normalisation | None = None
    ordered: bool = False
    agreement: Agreement = field(default_factory=Alone)

    @property
    def variables(self) -> list[keras.Variable]:
        """All that training changes, in the model's own order (paths can repeat, positions cannot)."""
        average = self.average.variables if self.average else ()
        return [*self.model.variables, *self.optimizer.variables, *average]

    @property
    def evaluated_weights(self) -> Tensors:
        """The values that evaluation computes with, in the order of the model's trainable variables."""
        return values(self.average.variables if self.average else self.model.trainable_variables)

    @property
    def statistics(self) -> tuple[str, ...]:
        """What a step reports as sums over its examples, in this order; `weight` is the sum of the rows' weights."""
        return ("loss", *self.objective.metrics, "weight")

    @property
    def seeds(self) -> tuple[int, int]:
        """How many seeds a shard needs: those of the model's seed variables, and those of its practice."""
        return len(seed_positions(self.model)), self.practice.seeds if self.practice else 0

    def inputs(self, rows: Any) -> Any:
        """What the model takes, of rows in their own type."""
        return self._normalised(self.to_inputs(rows))

    def _normalised(self, inputs: Any) -> Any:
        return self.normalisation(inputs) if self.normalisation else inputs

    def signature(self, feed: Feed) -> Batch:
        """The specs of a block of any number of batches of `feed`."""
        shards, rows = self.plan.shards, self.plan.rows
        return Batch(
            indices=tf.TensorSpec([None, shards, rows], tf.int32),
            weights=tf.TensorSpec([None, shards, rows], tf.float32),
            seeds=tf.TensorSpec([None, shards, sum(self.seeds), 2], tf.uint32),
            source=tuple(feed.specs),
        )

    def agreed_steps(self, steps: int) -> int:
        """So many steps as the worker that wishes for the fewest."""
        return min(self.agreement.gather(steps))

    def replica_sums(self, compute: Callable[[Any], Tensors], specs: list[tf.TensorSpec]) -> Tensors:
        """On one replica: the sum over all V shards of what `compute` gives for a shard's number.

        They are dealt to the replicas that the strategy has: all to one, where several devices are no replicas of it.
        """
        context = tf.distribute.get_replica_context()
        shards = self.plan.shards // context.num_replicas_in_sync
        first = context.replica_id_in_sync_group * shards
        sums = sum_shards(lambda shard: compute(first + shard), shards, specs)
        if self.ordered and self.agreement.size > 1:
            return gather_and_add(context, sums)
        return list(context.all_reduce(tf.distribute.ReduceOp.SUM, sums))

    def forward(
        self, feed: Feed, batch: Batch, weights: Tensors, state: Tensors, *, training: bool
    ) -> tuple[Tensors, Tensors]:
        """On one replica, for one shard: the non-trainable state after the call, and the statistics.

        `weights` and `state` are the values to compute with. The statistics are float32 scalars, each a weighted sum
        over the shard's rows; losses that layers add count as a mean over the rows.
        """
        outputs, labels, added, new_state = self.outputs(feed, batch, weights, state, training=training)
        return new_state, self.measure(outputs, labels, added, batch.weights)

    def outputs(
        self, feed: Feed, batch: Batch, weights: Tensors, state: Tensors, *, training: bool
    ) -> tuple[Any, Any, Any, Tensors]:
        """The first half of `forward`: float32 outputs, labels or `Targets`, the sum of added losses, state after."""
        with tf.device(HOST):
            rows, labels = feed.fetch(batch.source, batch.indices)
        inputs = self.to_inputs(rows)
        if training and self.practice:
            seeds = batch.seeds[self.seeds[0] :]
            inputs, labels = self.practice(inputs, labels, batch.weights, seeds, host=HOST)
        inputs = self._normalised(inputs)
        with activity_penalties_masked(self.model, batch.weights):
            outputs, new_state, losses = call_with(self.model, weights, state, inputs, training=training)
        added = losses[: len(losses) - len(regularized(self.model))]
        added = tf.convert_to_tensor(sum((tf.cast(value, tf.float32) for value in added), 0.0))
        return tf.cast(outputs, tf.float32), labels, added, new_state

    def measure(self, outputs: Any, labels: Any, added: Any, weights: Any) -> Tensors:
        """The second half of `forward`: the statistics of rows with these weights."""
        count = tf.reduce_sum(weights)
        targets = labels if isinstance(labels, Targets) else Targets(labels=labels)
        measured = [targets.loss(partial(_per_example, self.objective.loss), outputs)]
        measured += [_per_example(metric, targets.counted, outputs) for metric in self.objective.metrics.values()]
        loss, *metrics = [tf.reduce_sum(values * weights) for values in measured]
        return [loss + added * count, *metrics, count]


def call_with(
    model: keras.Model, weights: Tensors, state: Tensors, inputs: Any, *, training: bool
) -> tuple[Any, Tensors, Tensors]:
    """Outputs, non-trainable state afterwards and losses of a call in which the variables have these values.

    Raises UsageError if the model draws random numbers without a seed of its own: these would never change here.

    Keras's `stateless_call` goes around `__call__`, which a subclassed model needs: there its layers learn that this is
    training even if its own `call` does not take `training`, and inputs get the precision of the computation.
    """
    mapping = [*zip(model.trainable_variables, weights, strict=True)]
    mapping += zip(model.non_trainable_variables, state, strict=True)
    with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
        outputs = model(inputs, training=training)
        losses = model.losses
    determinism.refuse_hidden_seeds(scope, {id(variable) for variable, _ in mapping})
    return outputs, [scope.get_current_value(variable) for variable in model.non_trainable_variables], losses


def values(held: Sequence[keras.Variable]) -> Tensors:
    """The values of variables, as tensors."""
    return [tf.convert_to_tensor(variable.value) for variable in held]


def seed_positions(model: keras.Model) -> list[int]:
    """Where, among the non-trainable variables, the states of seed generators are."""
    return [i for i, v in enumerate(model.non_trainable_variables) if v.path.endswith("seed_generator_state")]


def on_host(batch: Batch, shard: Any) -> Batch:
    """One shard of a batch, cut out on the host, where its rows are fetched."""
    with tf.device(HOST):
        return batch.cut(shard)


def same_on_all(strategy: tf.distribute.Strategy, value: Any) -> Any:
    """The value that is the same on every replica."""
    return strategy.experimental_local_results(value)[0]


def _per_example(function: Any, labels: Any, outputs: Any) -> Any:
    values = tf.convert_to_tensor(function(labels, outputs))
    if values.shape.rank != 1:
        name = getattr(function, "__name__", type(function).__name__)
        raise UsageError(
            f"the loss or metric {name} gives shape {tuple(values.shape)} where one value an example is needed; "
            "do not average over the batch in it"
        )
    return tf.cast(values, tf.float32)
