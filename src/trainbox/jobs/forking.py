"""A new run that begins where another one is: `trainbox train --run OLD --fork NEW`, with other options.

The old run is only read. Weights, the optimizer's state and the numbers so far are taken over; which epoch is the best
one, and early stopping, begin anew. The new run's first checkpoint is written last: until it is there, nothing has
begun.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainbox import lines, manifest, metrics, run_folder, settings, trace
from trainbox.config import RunConfig
from trainbox.errors import UsageError
from trainbox.jobs import resume
from trainbox.plan import Plan
from trainbox.settings import Settings

if TYPE_CHECKING:
    from trainbox.checkpoint import Checkpoint
    from trainbox.display import Display
    from trainbox.jobs.saving import Saver
    from trainbox.progress import Progress


def settle(words: Settings, name: str) -> tuple[Settings, Path]:
    """The words of the run `name`, and the folder of the run that it begins from, which `words` name.

    Raises:
        UsageError: there is no such run, `name` cannot be that of a folder, or is that of a run with another beginning.
    """
    config = words.config
    if config.run is None:
        raise UsageError(f"--fork {name} needs --run, the name of the run that it begins from")
    parent = run_folder.find(config.run, config.output_dir)
    folder = config.output_dir / run_folder.checked(name, option="--fork")
    if folder.resolve() == parent.resolve():
        raise UsageError(f"--fork {name} is the run that it would begin from; choose another name")
    if (folder / manifest.FILE).exists() and any((folder / resume.CHECKPOINTS).glob("*")):
        begun = manifest.read(folder).get("fork") or {}
        if begun.get("run") != parent.name:
            raise UsageError(
                f"--fork {name}: {folder} holds a run that did not begin from {parent.name}; choose another"
            )
    mine = dataclasses.replace(config, run=name)
    return dataclasses.replace(words, config=mine, sources=words.sources | {"run": "flag --fork"}), parent


def origin(parent: Path, config: RunConfig, *, tell: Callable[[str], None]) -> Checkpoint:
    """The last good checkpoint of `parent`, if a run with `config` can begin from it.

    Raises:
        UsageError: there is none, its optimizer or its kind of schedule is another one, or all epochs are done.
        RunFailedError: all checkpoints are damaged.
    """
    from trainbox import checkpoint

    saved = checkpoint.latest(parent / resume.CHECKPOINTS, tell=tell)
    if saved is None:
        raise UsageError(f"{parent} has no checkpoint yet to begin from; train it first")
    before = settings.load(parent).config
    for name in ("optimizer", "schedule"):
        old, new = getattr(before, name), getattr(config, name)
        # A constant rate is part of the optimizer's state, and no other schedule is.
        if old != new and (name == "optimizer" or "constant" in (old, new)):
            raise UsageError(
                f"--{name} was {old} and is {new}: a fork goes on with the optimizer's state; keep --{name} {old}, or "
                "begin another --run"
            )
    done = saved.state["progress"]["epochs_done"]
    if done >= config.epochs:
        raise UsageError(
            f"{parent} has done {done} epochs, and --epochs {config.epochs} leaves none; give more --epochs"
        )
    return saved


def check_plan(parent: Path, config: RunConfig, plan: Plan, saved: Checkpoint) -> None:
    """Refuse a batch, rows or an engine with which the run cannot go on from where `saved` is.

    Raises:
        UsageError: it is inside an epoch, or a schedule counts steps that would be others.
    """
    from trainbox.progress import Progress

    progress, before = Progress.from_dict(saved.state["progress"]), Plan(**saved.state["plan"])
    same_rows = (before.global_batch, before.examples) == (plan.global_batch, plan.examples)
    inside = progress.position(progress.epochs_done, before.steps_per_epoch)
    if inside and not (same_rows and config.engine == settings.load(parent).config.engine):
        raise UsageError(
            f"{parent} is at step {inside} of epoch {progress.epochs_done + 1}, and batch, training rows and engine "
            "can change only between epochs; let it reach the end of the epoch, or keep them"
        )
    if before.steps_per_epoch != plan.steps_per_epoch and (config.schedule != "constant" or config.warmup_epochs):
        raise UsageError(
            f"an epoch had {before.steps_per_epoch} steps and has {plan.steps_per_epoch}: a learning rate that follows "
            "--schedule or --warmup-epochs would go on at the wrong place; keep the batch and rows, or leave these out"
        )


def begin(
    parent: Path, run_dir: Path, saved: Checkpoint, saver: Saver, *, config: RunConfig, display: Display
) -> Progress:
    """The progress with which the new run begins, everything of the old one in its folder.

    Raises:
        UsageError: the model's variables are not those of the checkpoint.
        RunFailedError: the disk is full.
    """
    progress = saver.take_over(saved, run=parent.name, before=settings.load(parent).config)
    try:
        _copy(parent, run_dir, progress, config)
    except OSError as error:
        raise lines.cannot_write(error, run_dir) from error
    saver.save(progress)
    saver.wait()
    display.line(f"begins from {parent.name} at step {progress.step} ({progress.epochs_done} epochs done)")
    return progress


def _copy(parent: Path, run_dir: Path, progress: Progress, config: RunConfig) -> None:
    """The numbers of `parent` up to its checkpoint, as lines and as TensorBoard's events."""
    logged = lines.until(parent / metrics.FILE, progress.step, unless=metrics.closing_after(progress.epochs_done))
    run_folder.atomic_write(run_dir / metrics.FILE, logged)
    if config.reproducible:
        run_folder.atomic_write(run_dir / trace.FILE, lines.until(parent / trace.FILE, progress.step))
    if config.tensorboard and (parent / "tensorboard").is_dir():
        shutil.copytree(parent / "tensorboard", run_dir / "tensorboard", dirs_exist_ok=True)
