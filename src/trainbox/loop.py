"""The loop: blocks of steps, epochs, evaluation, decisions, checkpoints and requests to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trainbox import randomness, scaling
from trainbox.blocks import Meter, Pace
from trainbox.bottleneck import Timings
from trainbox.cadence import Cadence
from trainbox.callbacks import Callbacks
from trainbox.data.pipeline import epoch_order
from trainbox.errors import DivergedError, InterruptedRunError
from trainbox.evaluate import means
from trainbox.learner import Batch, Feed
from trainbox.plan import Plan
from trainbox.progress import Progress


class Writer(Protocol):
    """Takes one line of metrics."""

    def write(self, *, step: int, epoch: int, seconds: float, scalars: Mapping[str, float | None]) -> None: ...


class Trace(Protocol):
    """Takes the statistics and fingerprints of a block of steps."""

    def write(self, *, first_step: int, statistics: Sequence[Sequence[float]], bits: Sequence[int]) -> None: ...


class Devices(Protocol):
    """Tells what the devices do as scalars: since the last line, and now."""

    def take(self) -> Mapping[str, float | None]: ...

    def latest(self) -> Mapping[str, float | None]: ...


class Display(Protocol):
    """Shows where the run is."""

    def update(self, *, epoch: int, step: int, scalars: Mapping[str, float | None]) -> None: ...

    def epoch(self, *, epoch: int, epochs: int, seconds: float, scalars: Mapping[str, float | None]) -> None: ...


@dataclass(kw_only=True)
class Loop:
    """A run from `progress` to its end; every collaborator is passed in.

    `block` is a compiled block of steps (`blocks.train_block`), or else `fit` trains one epoch at a time. `statistics`
    are the names of what they report, and `seeds` how many a shard needs (`Learner.seeds`). `validate` gives the
    validation metrics or is None, `save` takes a checkpoint of the variables and `progress`, and `await_saved` comes
    back when it is on the disk; both raise what kept the last one from there. `check_stop` raises InterruptedRunError
    when a signal asked for it, `learning_rate` tells the rate of an optimizer step, counted from 0. `trace` gets the
    fingerprints of steps that are traced, `timings` keeps where the time went.
    """

    plan: Plan
    feed: Feed
    seed: int
    statistics: tuple[str, ...]
    seeds: tuple[int, int]
    block: Callable[[Batch, Any], tuple[Any, ...]] | None
    fit: Callable[[int], dict[str, float]] | None = None
    validate: Callable[[], dict[str, float]] | None
    save: Callable[[Progress], None]
    await_saved: Callable[[], None]
    check_stop: Callable[[], None]
    learning_rate: Callable[[int], float]
    writer: Writer
    trace: Trace | None = None
    display: Display
    devices: Devices
    callbacks: Callbacks
    progress: Progress
    log_steps: int
    checkpoint_epochs: int
    cadence: Cadence
    patience: int
    timings: Timings = field(default_factory=Timings)
    pace: Pace = field(default_factory=Pace)
    _meter: Meter = field(default_factory=Meter)
    _saved_step: tuple[int, int] = (0, 0)

    def run(self) -> None:
        """Train to the end.

        Raises:
            InterruptedRunError: a signal asked to stop; a checkpoint has been saved if there was anything to save.
            DivergedError: the loss is not finite; the last good checkpoint is kept.
        """
        progress, plan = self.progress, self.plan
        self._saved_step = (progress.step, progress.epochs_done)
        try:
            self.check_stop()
            self.callbacks.begin()
            logs: dict[str, float] = {}
            while progress.epochs_done < plan.epochs and not progress.stopped_early:
                self._train_epoch(progress.epochs_done)
                logs = self._close_epoch(progress.epochs_done)
            self.callbacks.end(logs)
            if self.callbacks.active:
                # One of them may have put the best weights back.
                self.save(progress)
        except InterruptedRunError as stop:
            self._save_if_new()
            raise self._told(stop) from None
        finally:
            # Before anything is told of what is saved.
            self.await_saved()

    def check_stop_at_end(self) -> None:
        """After `run`, when all is saved: raise InterruptedRunError if a signal asked to stop, saying what is saved."""
        try:
            self.check_stop()
        except InterruptedRunError as stop:
            raise self._told(stop) from None

    def _train_epoch(self, epoch: int) -> None:
        """The steps of `epoch` that are not done yet."""
        progress, plan = self.progress, self.plan
        position = progress.position(epoch, plan.steps_per_epoch)
        self.timings.pause()
        if position == 0:
            progress.epoch_sums = [0.0] * len(self.statistics)
            self._meter = Meter()
            self.callbacks.epoch_begins(epoch)
        if not progress.interval_sums:
            progress.interval_sums = [0.0] * len(self.statistics)
        if self.fit:
            self._fit_epoch(self.fit, epoch)
            return
        self.feed.begin(epoch_order(plan, seed=self.seed, epoch=epoch), first_step=position)
        while position < plan.steps_per_epoch:
            left = min(plan.steps_per_epoch - position, self.cadence.steps_left(progress.step))
            position += self._train_block(epoch=epoch, steps=self.pace.next(left))
            logs = means(self.statistics, np.array(progress.epoch_sums))
            self.callbacks.block_ends(position - 1, logs)
            self.display.update(
                epoch=epoch,
                step=progress.shown(plan.steps_per_epoch),
                scalars={**_train(logs), "train/examples_per_second": progress.rate, **self.devices.latest()},
            )
            # At the end of the epoch it is saved when the epoch is closed.
            if position < plan.steps_per_epoch and self.cadence.due(progress.step):
                self._save_if_new()
            self.check_stop()

    def _fit_epoch(self, fit: Callable[[int], dict[str, float]], epoch: int) -> None:
        """A whole epoch by Keras's `fit`, whose means become sums over the epoch's rows."""
        began = time.perf_counter()
        logs = fit(epoch)
        progress, rows = self.progress, float(self.plan.examples)
        seconds = time.perf_counter() - began
        self._meter.note(examples=self.plan.examples, seconds=seconds, compiling=False)
        progress.rate = self._meter.rate
        progress.seconds += seconds
        progress.step += self.plan.steps_per_epoch
        progress.epoch_sums = [logs[name] * rows for name in self.statistics[:-1]] + [rows]
        progress.interval_sums = list(progress.epoch_sums)

    def _train_block(self, *, epoch: int, steps: int) -> int:
        """Take at most `steps` steps, as many as the feed has rows at hand for; returns how many."""
        progress, plan = self.progress, self.plan
        source, indices, weights = self.feed.take(steps)
        steps = len(indices)
        seeds = randomness.shard_seeds(
            seed=self.seed,
            first_step=progress.step,
            steps=steps,
            shards=plan.shards,
            variables=self.seeds[0],
            practice=self.seeds[1],
        )
        began = time.perf_counter()
        before = np.array(progress.scale_state, np.float32)
        assert self.block is not None
        statistics, taken, scale_state, *prints = self.block(Batch(indices, weights, seeds, source), before)
        rows, taken = statistics.numpy(), taken.numpy()
        ended = time.perf_counter()
        seconds, examples = ended - began, int(weights.sum())
        self.timings.block(began=began, ended=ended, steps=steps, examples=examples)
        self._meter.note(examples=examples, seconds=seconds, compiling=not self.pace.measured)
        progress.rate = self._meter.rate
        self.pace.note(steps=steps, seconds=seconds)
        progress.seconds += seconds
        progress.scale_state = scale_state.numpy().tolist()
        if self.trace:
            self.trace.write(first_step=progress.step + 1, statistics=rows.tolist(), bits=prints[0].numpy().tolist())
        scales = scaling.follow(before.tolist(), taken.tolist())
        for row, was_taken, scale in zip(rows.tolist(), taken.tolist(), scales, strict=True):
            self._account(row, was_taken, scale=scale, epoch=epoch)
        return steps

    def _account(self, row: Sequence[float], taken: bool, *, scale: float, epoch: int) -> None:
        """Add one step's statistics to the sums, and write the line of an interval that ends here."""
        progress = self.progress
        progress.step += 1
        progress.skipped += not taken
        if taken and not math.isfinite(row[0]):
            raise self._diverged(f"the loss is {row[0]}", epoch)
        if not taken and scale == scaling.LOWEST_SCALE:
            raise self._diverged("a gradient is not finite in float16 without any loss scaling", epoch)
        if math.isfinite(row[0]):
            progress.epoch_sums = [total + value for total, value in zip(progress.epoch_sums, row, strict=True)]
            progress.interval_sums = [total + value for total, value in zip(progress.interval_sums, row, strict=True)]
        in_epoch = progress.position(epoch, self.plan.steps_per_epoch)
        if self.log_steps and progress.step % self.log_steps == 0 and in_epoch < self.plan.steps_per_epoch:
            self._write(epoch, {**self._interval(), **self.devices.take()})

    def _interval(self) -> dict[str, float]:
        """Means since the last interval, whose sums begin anew."""
        values = means(self.statistics, np.array(self.progress.interval_sums))
        self.progress.interval_sums = [0.0] * len(self.statistics)
        return {f"interval/{name}": value for name, value in {**values, **self._rates()}.items()}

    def _rates(self) -> dict[str, float]:
        """The learning rate of the last step that was taken, and the examples per second."""
        taken = self.progress.step - self.progress.skipped
        return {"learning_rate": self.learning_rate(max(taken - 1, 0)), "examples_per_second": self.progress.rate}

    def _close_epoch(self, epoch: int) -> dict[str, float]:
        """Evaluate, decide, write the epoch's line and save what is due; the logs in Keras's names."""
        progress, plan = self.progress, self.plan
        logs = means(self.statistics, np.array(progress.epoch_sums))
        if not math.isfinite(logs["loss"]):
            raise self._diverged("no step of the epoch had a finite loss", epoch)
        validation = self.validate() if self.validate else {}
        scalars: dict[str, float | None] = {**_train(logs | self._rates()), **self.devices.take()}
        scalars |= {f"validation/{name}": value for name, value in validation.items()}
        if self.log_steps and progress.step % self.log_steps == 0:
            scalars = {**self._interval(), **scalars}
        logs |= {f"val_{name}": value for name, value in validation.items()}
        loss = validation.get("loss", logs["loss"])
        improved = self._note_best(loss)
        self.callbacks.epoch_ends(epoch, logs)
        progress.epochs_done += 1
        early = bool(self.patience and progress.epochs_since_best >= self.patience)
        progress.stopped_early = early or self.callbacks.stop
        self._write(epoch, scalars)
        self.display.epoch(epoch=epoch, epochs=plan.epochs, seconds=progress.seconds, scalars=scalars)
        last = progress.epochs_done == plan.epochs or progress.stopped_early
        due = progress.epochs_done % self.checkpoint_epochs == 0 or self.cadence.due(progress.step)
        if last or due or (improved and validation):
            if _better(loss, progress.best_saved):
                progress.best_saved, progress.best_step = loss, progress.step
            self._save_if_new()
        return logs

    def _note_best(self, loss: float) -> bool:
        progress = self.progress
        improved = _better(loss, progress.best)
        if improved:
            progress.best = loss
        progress.epochs_since_best = 0 if improved else progress.epochs_since_best + 1
        return improved

    def _write(self, epoch: int, scalars: Mapping[str, float | None]) -> None:
        progress = self.progress
        self.writer.write(step=progress.step, epoch=epoch + 1, seconds=progress.seconds, scalars=scalars)

    def _save_if_new(self) -> None:
        here = (self.progress.step, self.progress.epochs_done)
        if here != self._saved_step:
            self.save(self.progress)
            self._saved_step = here
            self.cadence.saved()
            self.timings.pause()

    def _diverged(self, what: str, epoch: int) -> DivergedError:
        kept = "the last good checkpoint is kept" if self._saved_step[0] else "nothing is saved yet"
        return DivergedError(
            f"{what} at step {self.progress.step} (epoch {epoch + 1}); {kept}; lower --learning-rate, clip with "
            "--global-clip-norm, or look at the data"
        )

    def _told(self, stop: InterruptedRunError) -> InterruptedRunError:
        step, done = self.progress.step, self.progress.epochs_done
        then = f"saved at step {step} ({done} of {self.plan.epochs} epochs done); the same command goes on from there"
        if not step:
            then = "nothing to save yet; the same command begins again"
        return InterruptedRunError(f"{stop}; {then}", signum=stop.exit_code - 128)


def _better(loss: float, best: float | None) -> bool:
    return math.isfinite(loss) and (best is None or loss < best)


def _train(logs: Mapping[str, float]) -> dict[str, float]:
    return {f"train/{name}": value for name, value in logs.items()}
