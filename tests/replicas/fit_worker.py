"""Trains the same model by Keras's fit and by trainbox's own step on REPLICAS logical CPUs; prints JSON.

python fit_worker.py REPLICAS
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainbox import blocks, checkpoint, fit, learner, models, objective, optimizers, plan, runtime, step, strategy
from trainbox.config import RunConfig
from trainbox.data import pipeline
from trainbox.devices import Selection
from trainbox.errors import DivergedError, InterruptedRunError

ROWS, BATCH, EPOCHS, SHAPE = 64, 16, 3, (8, 8, 1)


def make_model(mirrored: tf.distribute.Strategy, *, seed: int, rate: float = 0.01) -> tuple[Any, Any]:
    """A fresh cnn and Adam with a schedule."""
    keras.utils.set_random_seed(seed)
    config = RunConfig(learning_rate=rate, schedule="cosine", epochs=EPOCHS)
    with mirrored.scope():
        model = models.build("cnn", input_shape=SHAPE, num_classes=10)
        optimizer = optimizers.build(config, steps_per_epoch=ROWS // BATCH, total_steps=EPOCHS * ROWS // BATCH)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def engine(model: Any, optimizer: Any, rows: Any, chosen: plan.Plan, before: Callable[[int], None]) -> fit.EpochByFit:
    """Keras's fit over the rows in trainbox's order."""
    fit.prepare(model, optimizer, gives_logits=True)
    return fit.EpochByFit(
        model,
        rows,
        order=lambda epoch: pipeline.epoch_order(chosen, seed=1, epoch=epoch),
        before_batch=before,
    )


def by_step(mirrored: tf.distribute.Strategy, rows: Any, chosen: plan.Plan) -> list[float]:
    """Losses of the epochs by trainbox's own step."""
    model, optimizer = make_model(mirrored, seed=1)
    trained = learner.Learner(
        strategy=mirrored,
        model=model,
        optimizer=optimizer,
        objective=objective.classification(from_logits=True),
        plan=chosen,
    )
    block = blocks.train_block(step.TrainStep(trained, rows, loss_scaling=False))
    losses = []
    for epoch in range(EPOCHS):
        order = pipeline.epoch_order(chosen, seed=1, epoch=epoch)
        indices, weights = pipeline.deal(order, chosen, first_step=0, steps=chosen.steps_per_epoch)
        seeds = np.zeros((chosen.steps_per_epoch, chosen.shards, 0, 2), np.uint32)
        sums = block(learner.Batch(indices, weights, seeds), np.array([1.0, 0.0], np.float32))[0].numpy().sum(axis=0)
        losses.append(float(sums[0] / sums[-1]))
    return losses


def error_of(call: Callable[[], Any], kind: type[Exception]) -> str:
    """The message of the error that a call ends in."""
    try:
        call()
    except kind as error:
        return str(error)
    return "no error"


def main() -> None:
    """Everything on one layout."""
    replicas = int(sys.argv[1])
    config = RunConfig(device="cpu", logical_devices=replicas, batch_size=BATCH, epochs=EPOCHS)
    selection = Selection(kind="cpu", replicas=replicas, visible_devices="", names=("CPU",) * replicas, notice="")
    runtime.configure(config, selection)
    runtime.keep_order_of_sums(shards=replicas, reproducible=False)
    mirrored = strategy.build(config, selection)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (ROWS, *SHAPE)).astype(np.uint8)
    chosen = plan.make(config, replicas=replicas, examples=ROWS)
    split = pipeline.Split(inputs=images, labels=np.arange(ROWS, dtype=np.int32) % 10)
    rows = pipeline.ResidentFeed(split, chosen)

    result = straight(mirrored, rows, chosen) if replicas == 1 else resumed(mirrored, rows, chosen)
    result |= {"replicas": mirrored.num_replicas_in_sync, "step": by_step(mirrored, rows, chosen)}
    print(json.dumps(result))


def straight(mirrored: tf.distribute.Strategy, rows: Any, chosen: plan.Plan) -> dict[str, Any]:
    """A run from beginning to end, and one that diverges."""
    calm, wild = (
        engine(*make_model(mirrored, seed=1, rate=rate), rows, chosen, lambda batch: None) for rate in (0.01, 1e38)
    )
    return {"logs": [calm(epoch) for epoch in range(EPOCHS)], "diverged": error_of(lambda: wild(0), DivergedError)}


def resumed(mirrored: tf.distribute.Strategy, rows: Any, chosen: plan.Plan) -> dict[str, Any]:
    """A run whose variables after the first epoch are put into another model, which goes on and is then stopped."""
    batches: list[int] = []
    model, optimizer = make_model(mirrored, seed=1)
    first = engine(model, optimizer, rows, chosen, batches.append)
    logs = [first(0)]
    kept = checkpoint.snapshot([*model.variables, *optimizer.variables])
    logs += [first(1), first(2)]

    def stop_in_epoch_3(batch: int) -> None:
        if its_optimizer.iterations.numpy() == 3 * chosen.steps_per_epoch + 2:
            raise InterruptedRunError("stopped", signum=15)

    again, its_optimizer = make_model(mirrored, seed=2)
    second = engine(again, its_optimizer, rows, chosen, stop_in_epoch_3)
    for variable, value in zip([*again.variables, *its_optimizer.variables], kept, strict=True):
        variable.assign(value)
    return {
        "on": again.distribute_strategy.num_replicas_in_sync,
        "batches": batches,
        "logs": logs,
        "resumed": [second(1), second(2)],
        "stopped": error_of(lambda: second(3), InterruptedRunError),
    }


if __name__ == "__main__":
    main()
