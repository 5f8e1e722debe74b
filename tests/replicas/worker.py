"""Runs every case of `cases.py` on one layout of logical CPUs, in a process of its own.

python worker.py REPLICAS SHARDS fast|reproducible FOLDER [STRATEGY CASE…] writes FOLDER/results.json: for each case the
statistics of every step, the evaluation, and a digest and the values of all variables.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import cases
import covering
import keras
import numpy as np
import tensorflow as tf

from trainbox import (
    averaging,
    blocks,
    checkpoint,
    evaluate,
    learner,
    optimizers,
    plan,
    randomness,
    runtime,
    scaling,
    strategy,
)
from trainbox.config import RunConfig
from trainbox.data import pipeline
from trainbox.devices import Selection
from trainbox.jobs import looping


def run(
    case: cases.Case, built: tf.distribute.Strategy, config: RunConfig, *, replicas: int
) -> dict[str, dict[str, Any]]:
    """Train one case, from the same weights on each of its numbers of rows, and evaluate it on them."""
    inputs, labels = case.rows()
    traced = config.reproducible
    words = {"precision": case.precision} | dict(case.words or {})
    config = dataclasses.replace(config, batch_size=case.batch, epochs=case.epochs, **words)
    chosen = plan.make(config, replicas=replicas, examples=len(labels))
    keras.utils.set_random_seed(3)
    with built.scope():
        model = case.model()
        optimizer = case.optimizer() if case.words is None else optimizer_of(config, chosen)
        optimizer.build(model.trainable_variables)
        average = averaging.WeightAverage.of(model, momentum=config.ema_momentum) if config.ema_momentum else None
    trained = learner.Learner(
        strategy=built,
        model=model,
        optimizer=optimizer,
        objective=case.objective(),
        plan=chosen,
        average=average,
        practice=case.practice,
        normalisation=case.normalisation,
    )
    feed = pipeline.ResidentFeed(pipeline.Split(inputs=inputs, labels=labels), chosen)
    block = blocks.train_block(looping.training_step(config, trained, feed, traced=traced))
    held = trained.variables
    fresh = checkpoint.snapshot(held)
    results = {}
    for count in case.counts or (len(labels),):
        for variable, value in zip(held, fresh, strict=True):
            variable.value.assign(value)
        result = train(case, block, dataclasses.replace(chosen, examples=count), trained.seeds)
        arrays = checkpoint.snapshot(held)
        results["-" + str(count) if case.counts else ""] = result | {
            "evaluation": evaluated(trained, pipeline.Split(inputs=inputs[:count], labels=labels[:count])),
            "digest": checkpoint.digest(arrays),
            "weights": np.concatenate([array.astype(np.float64).ravel() for array in arrays]).tolist(),
            "unchanged": [
                variable.path.split("/")[-1]
                for variable, before, after in zip(held, fresh, arrays, strict=True)
                if before.tobytes() == after.tobytes()
            ],
            "replicas": model.distribute_strategy.num_replicas_in_sync,
        }
    return results


def evaluated(trained: learner.Learner, rows: pipeline.Split) -> dict[str, float]:
    """Loss and metrics on these rows."""
    feed = pipeline.ResidentFeed(rows, trained.plan.over(len(rows)))
    return evaluate.Evaluator(trained, feed)(between=lambda: None)


def optimizer_of(config: RunConfig, chosen: plan.Plan) -> keras.optimizers.Optimizer:
    """What a run with these words trains with."""
    return optimizers.build(config, steps_per_epoch=chosen.steps_per_epoch, total_steps=chosen.total_steps)


def train(case: cases.Case, block: Any, chosen: plan.Plan, needed: tuple[int, int]) -> dict[str, Any]:
    """Every epoch as one block; `needed` is how many seeds a shard needs."""
    scale: Any = np.array(scaling.initial_state(case.precision), np.float32)
    statistics, taken, bits = [], [], []
    for epoch in range(case.epochs):
        order = pipeline.epoch_order(chosen, seed=1, epoch=epoch)
        indices, weights = pipeline.deal(order, chosen, first_step=0, steps=chosen.steps_per_epoch)
        seeds = randomness.shard_seeds(
            seed=1,
            first_step=epoch * chosen.steps_per_epoch,
            steps=chosen.steps_per_epoch,
            shards=chosen.shards,
            variables=needed[0],
            practice=needed[1],
        )
        values, was_taken, scale, *prints = block(learner.Batch(indices, weights, seeds), scale)
        statistics += values.numpy().tolist()
        taken += was_taken.numpy().tolist()
        bits += [value for each in prints for value in each.numpy().tolist()]
    return {"statistics": statistics, "taken": taken, "bits": bits}


def main() -> None:
    """Configure the layout, run every case, write what came out."""
    replicas, shards, mode, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    selection = Selection(
        kind="cpu", replicas=replicas, visible_devices="", names=("CPU",) * replicas, notice="logical CPUs"
    )
    name, wanted = (sys.argv[5], sys.argv[6:]) if len(sys.argv) > 5 else ("auto", [])
    config = RunConfig(
        device="cpu",
        logical_devices=replicas,
        shards=shards,
        reproducible=mode == "reproducible",
        threads=2,
        strategy=name,
    )
    runtime.configure(config, selection)
    runtime.keep_order_of_sums(shards=shards, reproducible=config.reproducible)
    built = strategy.build(config, selection)
    every = cases.CASES | (covering.covering() if mode == "reproducible" else {})
    fits = {n: case for n, case in every.items() if mode in case.modes and replicas in case.layouts}
    chosen = {n: every[n] for n in wanted} or fits
    results = {}
    for name, case in chosen.items():
        for end, one in run(case, built, config, replicas=replicas).items():
            results[f"{name}{end}"] = one
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
