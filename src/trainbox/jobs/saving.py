"""From a run to its checkpoints and back."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainbox import checkpoint, lines, metrics, models, scaling, trace
from trainbox.background import Background
from trainbox.checkpoint import Checkpoint
from trainbox.config import RunConfig
from trainbox.display import Display
from trainbox.errors import DivergedError
from trainbox.jobs import resume
from trainbox.learner import Learner
from trainbox.plan import Plan
from trainbox.progress import Progress
from trainbox.run_folder import atomic_write


class Saver:
    """Saves and restores one run: the variables of model and optimizer, its progress, its plan and its code.

    `fork` tells the run, step and weights from which it began, if it did.

    A checkpoint holds the loop up for as long as it takes to copy the variables; a thread does the writing.
    """

    def __init__(self, run_dir: Path, config: RunConfig, learner: Learner) -> None:
        self._run_dir, self._config, self._plan = run_dir, config, learner.plan
        self._held = learner.variables
        source = models.source(config.model)
        self._code = source[1] if source else None
        self._optimizer = learner.optimizer
        self._background = Background()
        self.fork: dict[str, Any] | None = None

    def restore(self, saved: Checkpoint | None, display: Display) -> Progress:
        """Where `saved` was, its variables assigned; the beginning for None.

        Raises:
            UsageError: it is of another model, other options, or of another version of the user's model file.
        """
        if saved is None:
            return Progress(scale_state=scaling.initial_state(self._config.precision))
        resume.check_digest(self._run_dir, self._config, before=saved.state["config"])
        resume.check_code(self._run_dir, self._config, before=saved.state["code"], now=self._code)
        checkpoint.restore(saved, self._held)
        self.fork = saved.state["fork"]
        progress = Progress.from_dict(saved.state["progress"])
        done, epochs = progress.epochs_done, self._plan.epochs
        display.line(f"going on from step {progress.step} ({done} of {epochs} epochs done)")
        return progress

    def take_over(self, saved: Checkpoint, *, run: str, before: RunConfig) -> Progress:
        """Where `saved` was, a checkpoint of another `run` with the options `before`, to begin a new run from.

        Raises:
            UsageError: it is of another model.
        """
        checkpoint.restore(saved, self._held)
        self.fork = {"run": run, "step": saved.step, "weights": checkpoint.digest(saved.arrays)}
        progress = Progress.from_dict(saved.state["progress"])
        progress.best = progress.best_saved = progress.best_step = None
        progress.epochs_since_best, progress.stopped_early = 0, False
        if before.learning_rate != self._config.learning_rate and self._config.schedule == "constant":
            # A constant rate is a variable, which has just got the old value.
            self._optimizer.learning_rate = self._config.learning_rate
        if before.precision != self._config.precision:
            progress.scale_state = scaling.initial_state(self._config.precision)
        if Plan(**saved.state["plan"]).steps_per_epoch != self._plan.steps_per_epoch:
            progress.first_step, progress.first_epoch = progress.step, progress.epochs_done
        return progress

    def save(self, progress: Progress) -> None:
        """Take a checkpoint, to be written while training goes on, once the one before it is.

        Raises:
            DivergedError: a variable is not finite; nothing is written.
            RunFailedError, UsageError: as `check`.
        """
        self.wait()
        arrays = self._finite(progress)
        state = {
            "progress": progress.as_dict(),
            "plan": dataclasses.asdict(self._plan),
            "config": resume.digest(self._config),
            "code": self._code,
            "fork": self.fork,
        }
        self._background.start(partial(self._write, arrays, state))

    def _finite(self, progress: Progress) -> list[np.ndarray]:
        arrays = checkpoint.snapshot(self._held)
        for variable, array in zip(self._held, arrays, strict=True):
            if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
                raise DivergedError(
                    f"{variable.path} is not finite at step {progress.step}; the last good checkpoint is kept; lower "
                    "--learning-rate, clip with --global-clip-norm, or look at the data"
                )
        return arrays

    def check(self) -> None:
        """Say whether the last checkpoint failed, without waiting for it.

        Raises:
            RunFailedError: the disk is full; the checkpoints before are kept.
            UsageError: the folder is gone, or may not be written any more.
        """
        self._background.check()

    def wait(self) -> None:
        """Come back when the last checkpoint is on the disk. Raises what `check` does."""
        self._background.wait()

    def _write(self, arrays: list[np.ndarray], state: dict[str, Any]) -> None:
        """Bring a checkpoint to the disk, then delete those that are not to be kept."""
        step, best_step = state["progress"]["step"], state["progress"]["best_step"]
        folder = self._run_dir / resume.CHECKPOINTS
        # What comes back after a power cut is a run whose lines reach at least to its checkpoint.
        for name in (metrics.FILE, trace.FILE):
            lines.sync(self._run_dir / name)
        checkpoint.save(folder, step=step, arrays=arrays, state=state, write=atomic_write)
        checkpoint.discard_after(folder, step)
        checkpoint.prune(folder, keep=self._config.keep, best_step=best_step)


class Follower(Saver):
    """Saves nothing: the chief does, which finds the same fault in the same weights."""

    def __init__(self, config: RunConfig, learner: Learner) -> None:
        super().__init__(Path(), config, learner)

    def save(self, progress: Progress) -> None:
        """Raise DivergedError if a variable is not finite."""
        self._finite(progress)
