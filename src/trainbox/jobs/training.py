"""The job of `trainbox train`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox import display as displays
from trainbox import manifest, metrics, models, plugin, run_folder, settings
from trainbox.display import Display
from trainbox.errors import DivergedError, RunFailedError
from trainbox.jobs import resume, setting_up
from trainbox.progress import Progress
from trainbox.run_folder import RunFolder
from trainbox.settings import Settings

if TYPE_CHECKING:
    from trainbox.checkpoint import Checkpoint
    from trainbox.data.prepare import DatasetInfo
    from trainbox.learner import Learner
    from trainbox.loop import Loop
    from trainbox.plan import Plan

CHECKPOINTS = "checkpoints"


def train(words: Settings, *, command: list[str], display: Display) -> None:
    """Train, or go on with, the run that `words` name, to its end.

    Raises:
        TrainboxError: whatever keeps the run from its end; what was saved is kept.
    """
    config = words.config
    models.check(config.model)
    if config.callbacks:
        plugin.parse(config.callbacks, option="--callbacks")
    folder = RunFolder.create(config.output_dir, run_folder.name(config, os.environ, datetime.now()))
    with folder.lock():
        display.line(f"run: {folder.path.name}, in {folder.path}")
        finished = resume.completed(folder.path, config)
        if finished:
            display.line(finished)
            return
        resume.check_words(folder.path, words)
        folder.write(settings.CONFIG_FILE, settings.dump(words))
        with _logged(display, folder.path) as screen:
            _Training(words, folder, screen, command).run()


@contextlib.contextmanager
def _logged(display: Display, run_dir: Path) -> Iterator[Display]:
    """`display`, and the same lines in the run's `train.log`."""
    try:
        file = (run_dir / "train.log").open("a", encoding="utf-8")
    except OSError as error:
        raise RunFailedError(f"cannot write {run_dir / 'train.log'}: {error.strerror}") from error
    with file:
        log = displays.open_display("plain", stream=file, environ={})
        yield displays.Tee(display, log)


class _Training:
    """One start of a run: from its words to its result."""

    def __init__(self, words: Settings, folder: RunFolder, display: Display, command: list[str]) -> None:
        self._words, self._config, self._folder, self._display = words, words.config, folder, display
        self._command = command
        self._checkpoints = folder.path / CHECKPOINTS

    def run(self) -> None:
        config = self._config
        machine = setting_up.machine(config, self._display)

        from trainbox import checkpoint, fit, stopping

        if config.engine == "fit":
            fit.refuse(config, replicas=machine.selection.replicas)
        stop = stopping.StopRequest()
        stop.install()
        saved = checkpoint.latest(self._checkpoints, tell=self._display.line)
        info = setting_up.dataset(config, self._display)
        rows, held_out = setting_up.training_splits(config, info)
        plan = self._plan(machine.selection.replicas, len(rows), saved)
        learner = setting_up.learner(config, machine.strategy, info, plan)
        self._announce(learner)
        progress = self._restore(learner, saved)
        described = manifest.describe(
            config=config,
            sources=self._words.sources,
            selection=machine.selection,
            dataset=info,
            plan=plan,
            command=self._command,
        )
        manifest.write(self._folder.path, described)
        writer = metrics.MetricWriter(self._folder.path, step=progress.step, tensorboard=config.tensorboard)
        with contextlib.closing(writer), _failures_told(plan):
            loop = self._loop(learner, progress, writer, rows=rows, held_out=held_out, stop=stop.check)
            loop.run()
            self._finish(learner, progress, writer, info, stop.check)

    def _plan(self, replicas: int, examples: int, saved: Checkpoint | None) -> Plan:
        from trainbox import fit
        from trainbox import plan as plans

        before = saved.state["plan"] if saved else None
        plan = plans.make(
            self._config, replicas=replicas, examples=examples, shards=before["shards"] if before else None
        )
        if before:
            resume.check_plan(self._folder.path, plan, before)
        if self._config.engine == "fit":
            fit.refuse_rows(plan)
            if notice := fit.notice(plan):
                self._display.line(notice)
        return plan

    def _announce(self, learner: Learner) -> None:
        plan, config, say = learner.plan, self._config, self._display.line
        say(
            f"model: {config.model}, {setting_up.parameters(learner.model):,} parameters in {config.precision}; "
            f"{config.optimizer}, learning rate {config.learning_rate:g}, {config.schedule}"
        )
        say(
            f"batch: {plan.global_batch} global, {plan.rows_per_replica} a replica (replicas {plan.replicas}, shards "
            f"{plan.shards}, rows a shard {plan.rows}); {plan.steps_per_epoch} steps an epoch, {plan.epochs} epochs"
        )

    def _restore(self, learner: Learner, saved: Checkpoint | None) -> Progress:
        from trainbox import checkpoint, scaling

        source = models.source(self._config.model)
        if saved is None:
            return Progress(scale_state=scaling.initial_state(self._config.precision))
        resume.check_code(self._folder.path, self._config, saved.state["code"], source and source[1])
        checkpoint.restore(saved, checkpoint.variables(learner.model, learner.optimizer))
        progress = Progress.from_dict(saved.state["progress"])
        self._display.line(
            f"going on from step {progress.step} ({progress.epochs_done} of {self._config.epochs} epochs done)"
        )
        return progress

    def _loop(
        self,
        learner: Learner,
        progress: Progress,
        writer: metrics.MetricWriter,
        *,
        rows: Any,
        held_out: Any,
        stop: Callable[[], None],
    ) -> Loop:
        from trainbox import blocks, callbacks, evaluate, fit
        from trainbox.data.pipeline import ResidentRows, epoch_order
        from trainbox.learner import seed_positions
        from trainbox.loop import Loop
        from trainbox.step import TrainStep

        config, plan, model = self._config, learner.plan, learner.model
        resident = ResidentRows(rows)
        validate = None
        if held_out is not None:
            evaluator = evaluate.Evaluator(learner, ResidentRows(held_out), examples=len(held_out))
            validate = partial(evaluator, between=stop)
        fitted = block = None
        if config.engine == "fit":
            fit.prepare(model, learner.optimizer, gives_logits=learner.gives_logits)
            order = partial(epoch_order, plan, seed=config.seed)
            fitted = fit.EpochByFit(
                model, resident, plan=plan, order=lambda epoch: order(epoch=epoch), before_batch=lambda batch: stop()
            )
        else:
            block = blocks.train_block(TrainStep(learner, resident, loss_scaling=config.precision == "float16"))
        self._display.begin(epochs=plan.epochs, steps_per_epoch=plan.steps_per_epoch, step=progress.step)
        return Loop(
            plan=plan,
            seed=config.seed,
            statistics=learner.statistics,
            seed_variables=len(seed_positions(model)),
            block=block,
            fit=fitted,
            validate=validate,
            save=partial(self._save, learner),
            check_stop=stop,
            learning_rate=_rate(learner.optimizer),
            writer=writer,
            display=self._display,
            callbacks=callbacks.load(config.callbacks, model=model, epochs=config.epochs),
            progress=progress,
            log_steps=config.log_steps,
            checkpoint_epochs=config.checkpoint_epochs,
            patience=config.early_stopping,
        )

    def _save(self, learner: Learner, progress: Progress) -> None:
        import numpy as np

        from trainbox import checkpoint

        held = checkpoint.variables(learner.model, learner.optimizer)
        arrays = checkpoint.snapshot(held)
        for variable, array in zip(held, arrays, strict=True):
            if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
                raise DivergedError(
                    f"{variable.path} is not finite at step {progress.step}; the last good checkpoint is kept; lower "
                    "--learning-rate, clip with --global-clip-norm, or look at the data"
                )
        source = models.source(self._config.model)
        state = {
            "progress": progress.as_dict(),
            "plan": dataclasses.asdict(learner.plan),
            "code": source and source[1],
        }
        checkpoint.save(
            self._checkpoints, step=progress.step, arrays=arrays, state=state, write=run_folder.atomic_write
        )
        checkpoint.prune(self._checkpoints, keep=self._config.keep, best_step=progress.best_step)

    def _finish(
        self,
        learner: Learner,
        progress: Progress,
        writer: metrics.MetricWriter,
        info: DatasetInfo,
        stop: Callable[[], None],
    ) -> None:
        from trainbox import checkpoint, evaluate, export
        from trainbox.data.pipeline import ResidentRows

        tested: dict[str, float] = {}
        if "test" in info.splits:
            test = setting_up.split(info, "test")
            measured = evaluate.Evaluator(learner, ResidentRows(test), examples=len(test))(between=stop)
            tested = {f"test/{name}": value for name, value in measured.items()}
            self._display.line("  ".join(f"{name} {displays.number(value)}" for name, value in tested.items()))
        lines = metrics.read(self._folder.path)
        if tested and "test/loss" not in lines[-1]:
            writer.write(step=progress.step, epoch=progress.epochs_done, seconds=progress.seconds, scalars=tested)
        if notice := export.save_for_keras(learner.model, self._folder.path / "model.keras"):
            self._display.line(notice)
        last = next(line for line in reversed(metrics.read(self._folder.path)) if "train/loss" in line)
        final = {
            name: value
            for name, value in (last | tested).items()
            if name.startswith(("train/", "validation/", "test/"))
        }
        arrays = checkpoint.snapshot(checkpoint.variables(learner.model, learner.optimizer))
        result = {
            "epochs_done": progress.epochs_done,
            "stopped_early": progress.stopped_early,
            "step": progress.step,
            "best_step": progress.best_step,
            **final,
            "weights": checkpoint.digest(arrays),
            "metrics": metrics.digest(self._folder.path),
        }
        manifest.finish(self._folder.path, result)
        self._display.line(f"done: {self._folder.path}")


def _rate(optimizer: Any) -> Callable[[int], float]:
    """The learning rate of an optimizer step: of the schedule, or what is set now."""
    schedule = getattr(optimizer, "_learning_rate", None)
    if callable(schedule):
        return lambda step: float(schedule(step))
    return lambda step: float(optimizer.learning_rate.numpy())


@contextlib.contextmanager
def _failures_told(plan: Plan) -> Iterator[None]:
    """What TensorFlow raises while training, as a line."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.ResourceExhaustedError as error:
        raise RunFailedError(
            f"out of memory with a global batch of {plan.global_batch}, {plan.rows} rows a shard; use a smaller "
            f"--batch-size, or more --shards ({plan.shards * 2} halve the rows computed at once)"
        ) from error
    except tf.errors.OpError as error:
        raise RunFailedError(f"training failed in TensorFlow: {plugin.one_line(error)}") from error
