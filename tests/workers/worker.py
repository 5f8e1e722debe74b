"""One worker of several, in a process of its own: python worker.py WORKERS DEVICES INDEX PORT fast|reproducible.

Trains a CNN with BatchNormalization, Dropout and Adam on augmented images with cutmix, for two epochs with a short last
batch, evaluates it, and prints the digest of all variables, the statistics and the evaluation as JSON. Worker i listens
on PORT + i.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import keras
import numpy as np

from trainbox import (
    agreement,
    blocks,
    changes,
    checkpoint,
    evaluate,
    learner,
    plan,
    randomness,
    runtime,
    step,
    strategy,
)
from trainbox.config import RunConfig
from trainbox.data import pipeline
from trainbox.devices import Selection
from trainbox.objective import classification
from trainbox.practice import Practice

ROWS, BATCH, SHARDS, EPOCHS, SHAPE = 150, 64, 8, 2, (8, 8, 1)


def model() -> keras.Model:
    """With everything whose bits depend on the order of sums or on seeds."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(SHAPE),
            layers.Conv2D(8, 3, use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(16, activation="relu"),
            layers.Dense(10),
        ]
    )


def main() -> None:
    """Train, evaluate, tell."""
    workers, devices, index, port = map(int, sys.argv[1:5])
    config = RunConfig(
        device="cpu", logical_devices=devices, reproducible=sys.argv[5] == "reproducible", threads=2,
        batch_size=BATCH, shards=SHARDS, epochs=EPOCHS,
    )  # fmt: skip
    selection = Selection(kind="cpu", replicas=devices, visible_devices="", names=("CPU",) * devices, notice="")
    runtime.configure(config, selection)
    runtime.keep_order_of_sums(shards=SHARDS, reproducible=config.reproducible)
    if workers > 1:
        addresses = [f"127.0.0.1:{port + number}" for number in range(workers)]
        over = strategy.build_workers(config, selection, addresses=addresses, index=index)
        agreed: agreement.Agreement = agreement.AmongWorkers(over, index=index, size=workers)
    else:
        over, agreed = strategy.build(config, selection), agreement.Alone()
    chosen = plan.make(config, replicas=over.num_replicas_in_sync, examples=ROWS)
    assert chosen.replicas == workers * devices
    keras.utils.set_random_seed(3)
    with over.scope():
        made = model()
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(made.trainable_variables)
    trained = learner.Learner(
        strategy=over, model=made, optimizer=optimizer, objective=classification(from_logits=True), plan=chosen,
        agreement=agreed, ordered=config.reproducible,
        practice=Practice(changes=changes.parse("flip,crop:1,rotate:10,colour:0.2"), cutmix=1.0),
    )  # fmt: skip
    numbers = np.random.default_rng(0)
    inputs = numbers.integers(0, 256, (ROWS, *SHAPE)).astype(np.uint8)
    rows = pipeline.Split(inputs=inputs, labels=numbers.integers(0, 10, ROWS).astype(np.int32))
    statistics, bits = train(trained, rows)
    evaluator = evaluate.Evaluator(trained, pipeline.ResidentFeed(rows, chosen.over(ROWS)))
    print(
        json.dumps(
            {
                "digest": checkpoint.digest(checkpoint.snapshot(trained.variables)),
                "statistics": statistics,
                "bits": bits,
                "evaluation": evaluator(between=lambda: None),
            }
        )
    )


def train(trained: learner.Learner, rows: pipeline.Split) -> tuple[list[Any], list[int]]:
    """Every epoch as one block; the statistics and the fingerprint of every step."""
    chosen = trained.plan
    feed = pipeline.ResidentFeed(rows, chosen)
    block = blocks.train_block(step.TrainStep(trained, feed, loss_scaling=False, traced=True))
    scale: Any = np.array([1.0, 0.0], np.float32)
    statistics: list[Any] = []
    bits: list[int] = []
    for epoch in range(EPOCHS):
        feed.begin(pipeline.epoch_order(chosen, seed=1, epoch=epoch), first_step=0)
        source, indices, weights = feed.take(chosen.steps_per_epoch)
        seeds = randomness.shard_seeds(
            seed=1, first_step=epoch * chosen.steps_per_epoch, steps=chosen.steps_per_epoch, shards=SHARDS,
            variables=trained.seeds[0], practice=trained.seeds[1],
        )  # fmt: skip
        values, _, scale, prints = block(learner.Batch(indices, weights, seeds, source), scale)
        statistics += values.numpy().tolist()
        bits += prints.numpy().tolist()
    return statistics, bits


if __name__ == "__main__":
    main()
