"""Loss and metrics over a whole split, exactly those of one device: sums over examples, divided once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainbox.blocks import Pace, evaluation_block
from trainbox.learner import Batch, Feed, Learner, on_host, same_on_all, values
from trainbox.penalties import add_penalty, regularized, weight_penalty


class EvaluationStep:
    """Loss and metrics of one global batch, to be called inside a `tf.function`, outside `strategy.run`."""

    def __init__(self, learner: Learner, feed: Feed) -> None:
        self._learner = learner
        self._feed = feed
        self.statistics, self.signature = learner.statistics, learner.signature(feed)

    def __call__(self, batch: Batch) -> Any:
        """Statistics of the batch: float32 [statistics]."""
        strategy = self._learner.strategy
        return same_on_all(strategy, strategy.run(self._total, args=(batch,)))

    def _total(self, batch: Batch) -> Any:
        model = self._learner.model
        weights, state = self._learner.evaluated_weights, values(model.non_trainable_variables)

        def compute(shard: Any) -> list[Any]:
            cut = on_host(batch, shard)
            return [tf.stack(self._learner.forward(self._feed, cut, weights, state, training=False)[1])]

        total = self._learner.replica_sums(compute, [tf.TensorSpec([len(self.statistics)], tf.float32)])[0]
        return add_penalty(total, weight_penalty(model, weights)) if regularized(model) else total


class Evaluator:
    """Evaluates the rows of one feed as often as asked; compiled once."""

    def __init__(self, learner: Learner, feed: Feed) -> None:
        step = EvaluationStep(learner, feed)
        self._feed = feed
        self._names = learner.statistics
        self._block = evaluation_block(step)
        self._pace = Pace(agree=learner.agreed_steps)
        self._seeds_shape = step.signature.seeds.shape[1:]

    def __call__(self, *, between: Callable[[], None]) -> dict[str, float]:
        """Mean loss and metrics over the split. `between` is called after each block and may raise to stop."""
        plan = self._feed.plan
        self._feed.begin(np.arange(plan.examples, dtype=np.int32), first_step=0)
        sums = np.zeros(len(self._names))
        step = 0
        while step < plan.steps_per_epoch:
            source, indices, weights = self._feed.take(self._pace.next(plan.steps_per_epoch - step))
            steps = len(indices)
            seeds = np.zeros((steps, *self._seeds_shape), np.uint32)
            began = time.perf_counter()
            statistics = self._block(Batch(indices, weights, seeds, source)).numpy()
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
