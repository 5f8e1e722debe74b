"""`--engine fit`: epochs by Keras's own `fit`, for comparison, on the same rows in the same order as trainbox's loop.

What Keras 3.15.1 cannot do under a strategy, or does wrongly, is refused beforehand, in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from trainbox import plan as plans
from trainbox.config import RunConfig
from trainbox.data.pipeline import Indices
from trainbox.errors import DivergedError, UsageError
from trainbox.learner import Feed, scaled
from trainbox.plan import Plan

REMEDY = "use --engine trainbox"


def refuse(config: RunConfig, *, replicas: int) -> None:
    """Refuse what Keras's `fit` cannot do on `replicas` replicas, as far as the options tell, before there are data.

    Raises:
        UsageError: naming the option.
    """
    if config.checkpoint_epochs != 1:
        raise UsageError(
            f"--checkpoint-epochs {config.checkpoint_epochs} does not go with --engine fit, which cannot resume inside "
            f"an epoch and saves after each; leave it out, or {REMEDY}"
        )
    if replicas == 1:
        return
    for flag, value in (("--clip-norm", config.clip_norm), ("--global-clip-norm", config.global_clip_norm)):
        if value is not None:
            raise UsageError(
                f"{flag} {value:g} does not go with --engine fit on {replicas} replicas: Keras clips each replica's "
                f"gradient before it adds them; {REMEDY}"
            )
    if config.precision == "float16":
        raise UsageError(
            f"--precision float16 does not go with --engine fit on {replicas} replicas: Keras looks for an overflow on "
            f"the first one only; use bfloat16, or {REMEDY}"
        )
    batch = plans.wished_batch(config, replicas=replicas, shards=replicas)
    if batch % replicas:
        below = batch - batch % replicas
        choices = [str(size) for size in (below, below + replicas) if size]
        raise UsageError(f"batch {batch} is not divisible by {replicas} replicas; use {' or '.join(choices)}")


def refuse_rows(plan: Plan) -> None:
    """Refuse a number of training rows, or shards of a run begun by the other engine, that `fit` cannot deal.

    Raises:
        UsageError: with a batch size that it can, if there is one near.
    """
    if plan.shards != plan.replicas:
        raise UsageError(
            f"the run has {plan.shards} shards on {plan.replicas} replicas, and --engine fit knows no shards; {REMEDY}"
        )
    if _can_deal(plan.global_batch, plan):
        return
    rows = plan.examples % plan.global_batch
    other = next((size for size in _nearby(plan) if _can_deal(size, plan)), None)
    remedy = f"use --batch-size {other}, or --engine trainbox" if other else REMEDY
    raise UsageError(
        f"--engine fit cannot deal a batch of {rows} rows, of {plan.examples} in batches of {plan.global_batch}, to "
        f"{plan.replicas} replicas; {remedy}"
    )


def notice(plan: Plan) -> str | None:
    """One line on what `fit` does differently with these rows, or None."""
    rows = plan.examples % plan.global_batch
    if rows % plan.replicas == 0:
        return None
    return f"--engine fit averages the replicas' means: the {rows} rows of the last batch do not weigh the same"


def _can_deal(batch: int, plan: Plan) -> bool:
    """No replica may be without rows (wrong weights, NaN, or an abort), and Keras adds up the first batch's parts."""
    first, last = min(batch, plan.examples), plan.examples % batch or batch
    return batch % plan.replicas == 0 and first % plan.replicas == 0 and last >= plan.replicas


def _nearby(plan: Plan) -> list[int]:
    """Multiples of the replicas from half to twice the batch, the nearest first."""
    sizes = range(plan.replicas, 2 * plan.global_batch + 1, plan.replicas)
    return sorted((size for size in sizes if 2 * size >= plan.global_batch), key=lambda s: abs(s - plan.global_batch))


def prepare(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, *, gives_logits: bool
) -> keras.optimizers.Optimizer:
    """Compile the model, and return the built optimizer whose variables belong into a checkpoint.

    It is `optimizer` itself, or Keras's loss scaling around it in float16.
    """
    with model.distribute_strategy.scope():
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=gives_logits),
            metrics=["accuracy"],
            jit_compile=False,  # fails under a strategy
        )
        model.optimizer.build(model.trainable_variables)
    return model.optimizer


class EpochByFit:
    """Trains one epoch after the other by Keras's `fit`; the model has been compiled by `prepare`.

    An epoch is whole or nothing: whoever stops inside one goes on from the checkpoint of the last.
    """

    def __init__(
        self,
        model: keras.Model,
        feed: Feed,
        *,
        order: Callable[[int], Indices],
        before_batch: Callable[[int], None],
        to_inputs: Callable[[Any], Any] = scaled,
    ) -> None:
        """`order` gives the row numbers of an epoch; `before_batch` is called with each batch's number in its epoch and
        may raise to stop. Epochs and batches are counted from 0. `to_inputs` turns rows into what the model takes.
        """
        self._model = model
        self._feed = feed
        self._to_inputs = to_inputs
        self._order = order
        self._hook = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: before_batch(batch))

    def __call__(self, epoch: int) -> dict[str, float]:
        """Train epoch `epoch`: Keras's means of `loss` and `accuracy` over it.

        Raises:
            DivergedError: the loss is not finite.
        """
        history = self._model.fit(
            self._batches(epoch),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=0,
            callbacks=[self._hook],
        ).history
        loss = history["loss"][-1]
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss is {loss} in epoch {epoch + 1}; the last good checkpoint is kept; lower --learning-rate, or "
                "look at the data"
            )
        return {name: values[-1] for name, values in history.items()}

    def _batches(self, epoch: int) -> Any:
        """The epoch's batches in order, gathered ahead of their use."""

        def fetch(indices: Any) -> tuple[Any, Any]:
            rows, labels = self._feed.fetch((), indices)
            return self._to_inputs(rows), labels

        return (
            tf.data.Dataset.from_tensor_slices(self._feed.numbered(self._order(epoch)))
            .batch(self._feed.plan.global_batch)
            .map(fetch, num_parallel_calls=tf.data.AUTOTUNE)
            .prefetch(tf.data.AUTOTUNE)
        )
