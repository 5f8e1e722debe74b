"""From a run to its checkpoints and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from trainbox import checkpoint, models, scaling
from trainbox.checkpoint import Checkpoint
from trainbox.config import RunConfig
from trainbox.display import Display
from trainbox.errors import DivergedError
from trainbox.jobs import resume
from trainbox.learner import Learner
from trainbox.progress import Progress
from trainbox.run_folder import atomic_write


class Saver:
    """Saves and restores one run: the variables of model and optimizer, its progress, its plan and its code."""

    def __init__(self, run_dir: Path, config: RunConfig, learner: Learner) -> None:
        self._run_dir, self._config, self._plan = run_dir, config, learner.plan
        self._held = checkpoint.variables(learner.model, learner.optimizer)
        source = models.source(config.model)
        self._code = source[1] if source else None

    def restore(self, saved: Checkpoint | None, display: Display) -> Progress:
        """Where `saved` was, its variables assigned; the beginning for None.

        Raises:
            UsageError: it is of another model, or of another version of the user's model file.
        """
        if saved is None:
            return Progress(scale_state=scaling.initial_state(self._config.precision))
        resume.check_code(self._run_dir, self._config, before=saved.state["code"], now=self._code)
        checkpoint.restore(saved, self._held)
        progress = Progress.from_dict(saved.state["progress"])
        done, epochs = progress.epochs_done, self._plan.epochs
        display.line(f"going on from step {progress.step} ({done} of {epochs} epochs done)")
        return progress

    def save(self, progress: Progress) -> None:
        """Write a checkpoint, then delete those that are not to be kept.

        Raises:
            DivergedError: a variable is not finite; nothing is written.
            RunFailedError: the disk is full; the checkpoints before are kept.
        """
        arrays = checkpoint.snapshot(self._held)
        for variable, array in zip(self._held, arrays, strict=True):
            if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
                raise DivergedError(
                    f"{variable.path} is not finite at step {progress.step}; the last good checkpoint is kept; lower "
                    "--learning-rate, clip with --global-clip-norm, or look at the data"
                )
        folder = self._run_dir / resume.CHECKPOINTS
        state = {"progress": progress.as_dict(), "plan": dataclasses.asdict(self._plan), "code": self._code}
        checkpoint.save(folder, step=progress.step, arrays=arrays, state=state, write=atomic_write)
        checkpoint.discard_after(folder, progress.step)
        checkpoint.prune(folder, keep=self._config.keep, best_step=progress.best_step)
