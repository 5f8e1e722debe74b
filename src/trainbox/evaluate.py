"""Loss and metrics over a whole split, exactly those of one device: sums over examples, divided once."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainbox.blocks import Pace, evaluation_block
from trainbox.data.pipeline import deal
from trainbox.learner import Batch, Learner, Rows, on_host, same_on_all, values
from trainbox.penalties import add_penalty, regularized, weight_penalty


class EvaluationStep:
    """Loss and metrics of one global batch, to be called inside a `tf.function`, outside `strategy.run`."""

    def __init__(self, learner: Learner, rows: Rows) -> None:
        self._learner = learner
        self._rows = rows
        self.statistics, self.signature = learner.statistics, learner.signature

    def __call__(self, batch: Batch) -> Any:
        """Statistics of the batch: float32 [statistics]."""
        strategy = self._learner.strategy
        return same_on_all(strategy, strategy.run(self._total, args=(batch,)))

    def _total(self, batch: Batch) -> Any:
        model = self._learner.model
        weights, state = self._learner.evaluated_weights, values(model.non_trainable_variables)

        def compute(shard: Any) -> list[Any]:
            cut = on_host(batch, shard)
            return [tf.stack(self._learner.forward(self._rows, cut, weights, state, training=False)[1])]

        total = self._learner.replica_sums(compute, [tf.TensorSpec([len(self.statistics)], tf.float32)])[0]
        return add_penalty(total, weight_penalty(model, weights)) if regularized(model) else total


class Evaluator:
    """Evaluates one split as often as asked, with the run's batch and shards; compiled once."""

    def __init__(self, learner: Learner, rows: Rows, *, examples: int) -> None:
        self._plan = dataclasses.replace(learner.plan, examples=examples, epochs=1)
        self._names = learner.statistics
        self._block = evaluation_block(EvaluationStep(learner, rows))
        self._pace = Pace()
        self._seeds_shape = learner.signature.seeds.shape[1:]

    def __call__(self, *, between: Callable[[], None]) -> dict[str, float]:
        """Mean loss and metrics over the split. `between` is called after each block and may raise to stop."""
        order = np.arange(self._plan.examples, dtype=np.int32)
        sums = np.zeros(len(self._names))
        step = 0
        while step < self._plan.steps_per_epoch:
            steps = min(self._pace.steps, self._plan.steps_per_epoch - step)
            indices, weights = deal(order, self._plan, first_step=step, steps=steps)
            seeds = np.zeros((steps, *self._seeds_shape), np.uint32)
            began = time.perf_counter()
            statistics = self._block(Batch(indices, weights, seeds)).numpy()
            self._pace.note(steps=steps, seconds=time.perf_counter() - began)
            # Row by row, so that the sum does not depend on how the steps fell into blocks.
            for row in statistics:
                sums += row
            step += steps
            between()
        return means(self._names, sums)


def means(names: tuple[str, ...], sums: np.ndarray) -> dict[str, float]:
    """Sums over examples, the last of them the weight, as means by name; NaN where there was no example."""
    weight = sums[-1] or np.nan
    return {name: float(total / weight) for name, total in zip(names[:-1], sums[:-1], strict=True)}
