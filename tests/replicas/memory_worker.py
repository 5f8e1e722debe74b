"""Peak memory: python memory_worker.py SHARDS prints the bytes that training steps of 1,024 rows a shard add."""

from __future__ import annotations

import sys
from pathlib import Path

import cases
import keras
import numpy as np

from trainbox import blocks, learner, plan, runtime, step, strategy
from trainbox.config import RunConfig
from trainbox.data import pipeline
from trainbox.devices import Selection
from trainbox.objective import classification

ROWS, SHAPE = 1024, (28, 28, 1)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Two steps on one device, after which the peak is that of any number of steps."""
    shards = int(sys.argv[1])
    config = RunConfig(device="cpu", batch_size=ROWS * shards, shards=shards, reproducible=True)
    selection = Selection(kind="cpu", replicas=1, visible_devices="", names=("CPU",), notice="")
    runtime.configure(config, selection)
    runtime.keep_order_of_sums(shards=shards, reproducible=True)
    mirrored = strategy.build(config, selection)
    chosen = plan.make(config, replicas=1, examples=ROWS * shards)
    rows = pipeline.Split(inputs=np.zeros((ROWS, *SHAPE), np.uint8), labels=np.zeros(ROWS, np.int32))
    feed = pipeline.ResidentFeed(rows, chosen)
    with mirrored.scope():
        model = keras.Sequential(
            [
                keras.Input(SHAPE),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(10),
            ]
        )
        optimizer = cases.sgd()()
        optimizer.build(model.trainable_variables)
    trained = learner.Learner(
        strategy=mirrored, model=model, optimizer=optimizer, objective=classification(from_logits=True), plan=chosen
    )
    block = blocks.train_block(step.TrainStep(trained, feed, loss_scaling=False))
    indices = np.tile(np.arange(ROWS, dtype=np.int32), (2, shards, 1))
    batch = learner.Batch(indices, np.ones_like(indices, np.float32), np.zeros((2, shards, 0, 2), np.uint32))
    before = peak()
    block(batch, np.array([1.0, 0.0], np.float32))
    print(peak() - before)


if __name__ == "__main__":
    main()
