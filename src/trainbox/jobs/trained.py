"""A finished or interrupted run, opened again: its model with the weights of one of its checkpoints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainbox import models
from trainbox.display import Display
from trainbox.errors import UsageError
from trainbox.jobs import resume, setting_up
from trainbox.settings import Settings

if TYPE_CHECKING:
    from trainbox.checkpoint import Checkpoint
    from trainbox.data.prepare import DatasetInfo
    from trainbox.learner import Learner


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model with the weights that it had after `step`."""

    learner: Learner
    info: DatasetInfo
    step: int


def open_trained(run_dir: Path, *, settings: Settings, checkpoint: str, display: Display) -> Trained:
    """The run in `run_dir` as of its `last` or its `best` checkpoint, on the devices that `settings` name.

    Raises:
        UsageError: it has saved nothing yet, or its model's file has changed.
        RunFailedError: its checkpoints are damaged.
    """
    config = settings.config
    models.check(config.model)
    selection = setting_up.devices(config, display)
    strategy = setting_up.strategy(config, selection)

    from trainbox import checkpoint as checkpoints
    from trainbox.plan import Plan

    saved = _chosen(run_dir, checkpoint, display)
    source = models.source(config.model)
    resume.check_code(run_dir, config, before=saved.state["code"], now=source[1] if source else None)
    info = setting_up.used(config, setting_up.dataset(config, display))
    plan = Plan(**saved.state["plan"])
    replicas = selection.replicas
    # What is measured does not depend on V, so any number of devices may measure it.
    shards = plan.shards if plan.shards % replicas == 0 else replicas
    plan = dataclasses.replace(plan, replicas=replicas, shards=shards)
    rows = setting_up.training_splits(config, info)[0] if config.normalise != "none" else None
    learner = setting_up.learner(config, strategy, info, plan, rows=rows)
    checkpoints.restore(saved, learner.variables)
    if learner.average:
        learner.average.give_to(learner.model)
    display.line(f"checkpoint: {saved.path.name} of {run_dir.name}")
    return Trained(learner=learner, info=info, step=saved.step)


def _chosen(run_dir: Path, which: str, display: Display) -> Checkpoint:
    from trainbox import checkpoint as checkpoints

    folder = run_dir / resume.CHECKPOINTS
    last = checkpoints.latest(folder, tell=display.line)
    if last is None:
        raise UsageError(f"{run_dir} has no checkpoint yet; train it first")
    best = last.state["progress"]["best_step"]
    if which == "last" or best is None or best == last.step:
        return last
    for path in checkpoints.paths(folder):
        if checkpoints.step_of(path) == best:
            return checkpoints.read(path)
    raise UsageError(f"the best checkpoint of {run_dir}, of step {best}, is gone; use --checkpoint last")
