"""Examples per second of trainbox's loop against Keras's `fit`, on the pipeline and the model of TensorFlow's tutorial.

python benchmarks/against_keras.py [--rounds 7] [--examples 19200] [--output FILE]

For each layout (one CPU device; two logical ones under MirroredStrategy) both have a process of their own, since what
one sets in TensorFlow would meet the other, and take turns, the first one second in every other round. A turn is an
epoch, timed from its step 60 on: compilation, filling Keras's shuffle buffer and finding the length of trainbox's
blocks are warm-up, as is one whole turn of each.

The ratio of a layout is the median over the rounds of trainbox's rate by Keras's in the same round, so that a slow
moment meets both. Where other processes keep the CPUs busy, both wait for them and the ratio comes near 1; their share
is printed. The rows are random numbers in the shape of Fashion-MNIST.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYOUTS = (1, 2)
SHAPE, CLASSES = (28, 28, 1), 10
SHUFFLE_BUFFER = 10_000
WARM_STEPS = 60

Turn = Callable[[], float]


class Clock:
    """Stands in for the display and the writer of a run: the steps a second from step `WARM_STEPS` of an epoch on."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._first: tuple[int, float] | None = None

    def update(self, *, step: int, **where: Any) -> None:
        """So many steps of the epoch are done."""
        now = time.perf_counter()
        if self._first is not None:
            self.rate = (step - self._first[0]) / (now - self._first[1])
        elif step >= WARM_STEPS:
            self._first = step, now

    def epoch(self, **where: Any) -> None:
        """An epoch is done."""

    def write(self, **line: Any) -> None:
        """A line of metrics is due."""


def keras_turn(rows: Any, strategy: Any, *, batch: int) -> Turn:
    """Keras's `fit` as in the tutorial; without a strategy on one device, where it is fastest."""
    import keras
    import tensorflow as tf

    from trainbox import models

    def scale(image: Any, label: Any) -> tuple[Any, Any]:
        return tf.cast(image, tf.float32) / 255, label

    class Timer(keras.callbacks.Callback):
        """Reads the clock where Keras need not wait for the batch's numbers."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.clock, self.done = Clock(), 0

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.clock.update(step=batch)
            self.done = batch + 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.clock.update(step=self.done)

    with strategy.scope() if strategy.num_replicas_in_sync > 1 else contextlib.nullcontext():
        model = models.build("cnn", input_shape=SHAPE, num_classes=CLASSES)
        model.compile(
            optimizer=keras.optimizers.Adam(),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    data = tf.data.Dataset.from_tensor_slices((rows.inputs, rows.labels)).map(
        scale, num_parallel_calls=tf.data.AUTOTUNE
    )
    data = data.cache().shuffle(SHUFFLE_BUFFER).batch(batch).prefetch(tf.data.AUTOTUNE)

    def turn() -> float:
        timer = Timer()
        model.fit(data, epochs=1, shuffle=False, verbose=0, callbacks=[timer])
        return timer.clock.rate * batch

    return turn


def trainbox_turn(rows: Any, strategy: Any, *, batch: int) -> Turn:
    """trainbox's loop with all that it does between blocks, but for the files it writes."""
    from trainbox import blocks, models, objective, optimizers, plan, step
    from trainbox.cadence import Cadence
    from trainbox.callbacks import Callbacks
    from trainbox.config import RunConfig
    from trainbox.data.pipeline import ResidentFeed
    from trainbox.learner import Learner
    from trainbox.loop import Loop
    from trainbox.monitor import Monitor
    from trainbox.progress import Progress

    config = RunConfig(batch_size=batch, epochs=1)
    chosen = plan.make(config, replicas=strategy.num_replicas_in_sync, examples=len(rows))
    with strategy.scope():
        model = models.build("cnn", input_shape=SHAPE, num_classes=CLASSES)
        optimizer = optimizers.build(config, steps_per_epoch=chosen.steps_per_epoch, total_steps=chosen.total_steps)
        optimizer.build(model.trainable_variables)
    learner = Learner(
        strategy=strategy,
        model=model,
        optimizer=optimizer,
        objective=objective.classification(from_logits=True),
        plan=chosen,
    )
    feed = ResidentFeed(rows, chosen)
    block = blocks.train_block(step.TrainStep(learner, feed, loss_scaling=False))

    def turn() -> float:
        clock = Clock()
        Loop(
            plan=chosen,
            feed=feed,
            seed=1,
            statistics=learner.statistics,
            seeds=learner.seeds,
            block=block,
            validate=None,
            save=lambda progress: None,
            await_saved=lambda: None,
            check_stop=lambda: None,
            learning_rate=lambda number: config.learning_rate,
            writer=clock,
            display=clock,
            devices=Monitor([]),
            callbacks=Callbacks([], model=model, epochs=config.epochs),
            progress=Progress(),
            log_steps=config.log_steps,
            checkpoint_epochs=1,
            cadence=Cadence(),
            patience=0,
        ).run()
        return clock.rate * batch

    return turn


def serve(engine: str, replicas: int, arguments: argparse.Namespace) -> None:
    """In a process of its own: take a turn for every line on stdin, and answer with its examples per second."""
    import numpy as np
    import tensorflow as tf

    from trainbox import runtime, strategy
    from trainbox.config import RunConfig
    from trainbox.data.pipeline import Split
    from trainbox.devices import Selection

    if engine == "keras":
        if replicas > 1:
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
        mirrored = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(replicas)])
    else:
        config = RunConfig(device="cpu", logical_devices=replicas)
        selection = Selection(kind="cpu", replicas=replicas, visible_devices="", names=("CPU",) * replicas, notice="")
        runtime.configure(config, selection)
        runtime.keep_order_of_sums(shards=replicas, reproducible=False)
        mirrored = strategy.build(config, selection)
    numbers = np.random.default_rng(0)
    rows = Split(
        inputs=numbers.integers(0, 256, (arguments.examples, *SHAPE)).astype(np.uint8),
        labels=numbers.integers(0, CLASSES, arguments.examples).astype(np.int32),
    )
    turn = ENGINES[engine](rows, mirrored, batch=arguments.batch_size)
    for _ in sys.stdin:
        print(turn(), flush=True)


ENGINES = {"keras": keras_turn, "trainbox": trainbox_turn}


class Engine:
    """The process of one engine on one layout, idle between its turns."""

    def __init__(self, name: str, replicas: int, words: list[str]) -> None:
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, __file__, *words, "--engine", name, "--layout", str(replicas)]
        self._process = subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def turn(self) -> float:
        """Examples per second of one more epoch."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("turn\n")
        return float(self._process.stdout.readline())

    def cpu_seconds(self) -> float:
        """CPU seconds that the process has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def measure(replicas: int, rounds: int, words: list[str]) -> dict[str, Any]:
    """Examples per second of each round, by engine, and the CPU share of other processes."""
    engines = {name: Engine(name, replicas, words) for name in ENGINES}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for engine in engines.values():
        engine.turn()

    def others() -> float:
        return busy_seconds() - sum(engine.cpu_seconds() for engine in engines.values())

    before, began = others(), time.perf_counter()
    for number in range(rounds):
        for name in sorted(engines, reverse=bool(number % 2)):
            rates[name].append(engines[name].turn())
    share = (others() - before) / ((os.cpu_count() or 1) * (time.perf_counter() - began))
    for engine in engines.values():
        engine.close()
    return {"rates": rates, "others_share": max(share, 0.0)}


def busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used since it started."""
    user, nice, system, _idle, _waiting, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def summarize(replicas: int, measured: dict[str, Any]) -> dict[str, Any]:
    """What is reported of a layout."""
    rates = measured["rates"]
    ratios = [ours / theirs for ours, theirs in zip(rates["trainbox"], rates["keras"], strict=True)]
    return {
        "devices": replicas,
        "examples_per_second": {name: statistics.median(values) for name, values in rates.items()},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        **measured,
    }


def parse(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="timed turns of each (default 7)")
    parser.add_argument("--examples", type=int, default=19_200, help="rows of an epoch (default 19200)")
    parser.add_argument("--batch-size", type=int, default=64, help="global batch (default 64)")
    parser.add_argument("--output", type=Path, help="write everything that was measured as JSON")
    parser.add_argument("--layout", type=int, choices=LAYOUTS, help=argparse.SUPPRESS)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main(words: list[str]) -> None:
    """Measure every layout, print a line for each, write the JSON."""
    arguments = parse(words)
    if arguments.engine:
        serve(arguments.engine, arguments.layout, arguments)
        return
    results = []
    for replicas in LAYOUTS:
        result = summarize(replicas, measure(replicas, arguments.rounds, words))
        results.append(result)
        rates, ratios = result["examples_per_second"], result["ratios"]
        print(
            f"{replicas} device{'s' * (replicas > 1)}, batch {arguments.batch_size}: "
            f"trainbox {rates['trainbox']:,.0f} examples/s, Keras fit {rates['keras']:,.0f}, "
            f"{result['ratio']:.2f} times ({min(ratios):.2f} to {max(ratios):.2f} in {arguments.rounds} rounds); "
            f"other processes used {result['others_share']:.0%} of the CPUs",
            flush=True,
        )
    if arguments.output:
        settings = {"batch_size": arguments.batch_size, "examples": arguments.examples, "cpus": os.cpu_count()}
        arguments.output.write_text(json.dumps({**settings, "layouts": results}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
