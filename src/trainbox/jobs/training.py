"""The job of `trainbox train`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox import display as displays
from trainbox import manifest, metrics, models, plugin, processor, run_folder, settings, trace
from trainbox.config import RunConfig
from trainbox.display import Display
from trainbox.errors import RunFailedError
from trainbox.jobs import batching, failing, forking, resume, setting_up, watching
from trainbox.run_folder import RunFolder
from trainbox.settings import Settings

if TYPE_CHECKING:
    import tensorflow as tf

    from trainbox.checkpoint import Checkpoint
    from trainbox.data.pipeline import Split
    from trainbox.data.prepare import DatasetInfo
    from trainbox.devices import Selection
    from trainbox.jobs.saving import Saver
    from trainbox.learner import Feed, Learner
    from trainbox.plan import Plan
    from trainbox.progress import Progress
    from trainbox.stopping import StopRequest


def train(words: Settings, *, command: list[str], display: Display, fork: str | None = None) -> None:
    """Train, or go on with, the run that `words` name, to its end; or that of the name `fork`, which begins from it.

    Raises:
        TrainboxError: whatever keeps the run from its end; what was saved is kept.
    """
    config = words.config
    models.check(config.model)
    if config.callbacks:
        plugin.parse(config.callbacks, option="--callbacks")
    parent = None
    if fork is not None:
        words, parent = forking.settle(words, fork)
        config = words.config
    folder = RunFolder.create(config.output_dir, run_folder.name(config, os.environ, datetime.now()))
    with folder.lock():
        display.line(f"run: {folder.path.name}, in {folder.path}")
        words = batching.recalled(folder.path, words)
        resume.check_words(folder.path, words)
        finished = resume.completed(folder.path, words.config)
        if finished:
            display.line(finished)
            return
        with _logged(display, folder.path) as screen:
            _run(words, folder.path, parent, command=command, display=screen)


def _run(words: Settings, run_dir: Path, parent: Path | None, *, command: list[str], display: Display) -> None:
    """One start of a run, from its words to its result; where it has nothing to go on from, it begins from `parent`."""
    config = words.config
    selection = setting_up.devices(config, display)
    processor.refuse(config, selection)
    if config.engine == "fit":
        from trainbox import fit

        fit.refuse(config, replicas=selection.replicas)
    # Before TensorFlow, which takes seconds to load: a wrong name is told soon, and a signal is answered at once.
    info = setting_up.dataset(config, display)
    words = batching.found(words, selection=selection, info=info, display=display)
    config = words.config
    strategy = setting_up.strategy(config, selection)

    from trainbox import checkpoint, stopping

    stop = stopping.StopRequest()
    stop.install()
    saved = checkpoint.latest(run_dir / resume.CHECKPOINTS, tell=display.line)
    if saved:
        resume.check_data(run_dir, info)
        parent = None
    elif parent:
        saved = forking.origin(parent, config, tell=display.line)
    rows, held_out = setting_up.training_splits(config, info)
    plan = _plan(config, run_dir, saved, parent, replicas=selection.replicas, examples=len(rows), display=display)
    _train(
        words, run_dir, saved, parent, selection=selection, strategy=strategy, info=info, splits=(rows, held_out),
        plan=plan, stop=stop, command=command, display=display,
    )  # fmt: skip


def _train(
    words: Settings, run_dir: Path, saved: Checkpoint | None, parent: Path | None, *,
    selection: Selection, strategy: tf.distribute.Strategy, info: DatasetInfo, splits: tuple[Split, Split | None],
    plan: Plan, stop: StopRequest, command: list[str], display: Display,
) -> None:  # fmt: skip
    """From the plan of a run to its result."""
    from trainbox.jobs import finishing, looping, saving

    config = words.config
    with watching.begin(config, selection, display) as watched, failing.told(config, plan):
        watched.first_step.phase("building the model")
        learner = setting_up.learner(config, strategy, info, plan)
        _announce(config, learner, display)
        saver = saving.Saver(run_dir, config, learner)
        described = manifest.describe(
            config=config, sources=words.sources, selection=selection, dataset=info, plan=plan, command=command
        )
        progress = _enter(words, run_dir, saved, parent, saver=saver, described=described, display=display)
        writer = metrics.MetricWriter(
            run_dir, step=progress.step, epochs_done=progress.epochs_done, tensorboard=config.tensorboard
        )
        with (
            contextlib.closing(writer), _traced(config, run_dir, progress.step) as traced, _fed(splits, plan) as feeds,
        ):  # fmt: skip
            shown = progress.shown(plan.steps_per_epoch)
            display.begin(epochs=plan.epochs, steps_per_epoch=plan.steps_per_epoch, step=shown)
            loop = looping.build(
                config, learner, progress, feed=feeds[0], held_out=feeds[1], save=saver.save, await_saved=saver.wait,
                check_stop=_either(saver.check, stop.check), writer=writer, trace=traced, display=display,
                monitor=watched.monitor, watch=watched.first_step,
            )  # fmt: skip
            loop.run()
            verdict = None if config.engine == "fit" else watched.verdict(loop.timings, plan)
            tested = finishing.test(learner, info, between=loop.check_stop_at_end, display=display)
            finishing.finish(run_dir, learner, progress, writer, tested=tested, verdict=verdict, display=display)


def _enter(
    words: Settings, run_dir: Path, saved: Checkpoint | None, parent: Path | None, *,
    saver: Saver, described: dict[str, Any], display: Display,
) -> Progress:  # fmt: skip
    """Take up the run where it is, with its words and what it runs on in its folder."""
    if saved and parent:
        progress = forking.begin(parent, run_dir, saved, saver, config=words.config, display=display)
    else:
        progress = saver.restore(saved, display)
    # Not before the run is known to go on from what is there: a refused command leaves it as it was.
    run_folder.atomic_write(run_dir / settings.CONFIG_FILE, settings.dump(words))
    manifest.write(run_dir, described | ({"fork": saver.fork} if saver.fork else {}))
    return progress


def _either(*checks: Callable[[], None]) -> Callable[[], None]:
    """All of the checks in their order, of which the first that raises is told."""

    def check() -> None:
        for each in checks:
            each()

    return check


@contextlib.contextmanager
def _traced(config: RunConfig, run_dir: Path, step: int) -> Iterator[trace.TraceWriter | None]:
    """The trace of a reproducible run from `step` on; others leave none, and do not pay for it."""
    if not config.reproducible:
        yield None
        return
    with contextlib.closing(trace.TraceWriter(run_dir, step=step)) as writer:
        yield writer


@contextlib.contextmanager
def _fed(splits: tuple[Split, Split | None], plan: Plan) -> Iterator[tuple[Feed, Feed | None]]:
    """What feeds training, and validation if there is any."""
    rows, held_out = splits
    with contextlib.ExitStack() as stack:
        feed = stack.enter_context(contextlib.closing(setting_up.feed(rows, plan)))
        if held_out is None:
            yield feed, None
        else:
            yield feed, stack.enter_context(contextlib.closing(setting_up.feed(held_out, plan.over(len(held_out)))))


@contextlib.contextmanager
def _logged(display: Display, run_dir: Path) -> Iterator[Display]:
    """`display`, and the same lines in the run's `train.log`."""
    try:
        file = (run_dir / run_folder.LOG_FILE).open("a", encoding="utf-8")
    except OSError as error:
        raise RunFailedError(f"cannot write {run_dir / run_folder.LOG_FILE}: {error.strerror}") from error
    with file:
        yield displays.Tee(display, displays.open_display("plain", stream=file, environ={}))


def _plan(
    config: RunConfig, run_dir: Path, saved: Checkpoint | None, parent: Path | None, *,
    replicas: int, examples: int, display: Display,
) -> Plan:  # fmt: skip
    """The plan of the run, which is that of its checkpoint if it has one. Raises UsageError if it cannot be.

    With a `parent` the checkpoint is that of another run, and the plan need only be one that can begin from there.
    """
    from trainbox import fit
    from trainbox import plan as plans

    before = saved.state["plan"] if saved else None
    plan = plans.make(config, replicas=replicas, examples=examples, shards=before["shards"] if before else None)
    if saved and parent:
        forking.check_plan(parent, config, plan, saved)
    elif before:
        resume.check_plan(run_dir, plan, before)
    if config.engine == "fit":
        fit.refuse_rows(plan)
        if notice := fit.notice(plan):
            display.line(notice)
    return plan


def _announce(config: RunConfig, learner: Learner, display: Display) -> None:
    plan = learner.plan
    display.line(
        f"model: {config.model}, {learner.model.count_params():,} parameters in {config.precision}; "
        f"{config.optimizer}, learning rate {config.learning_rate:g}, {config.schedule}"
    )
    display.line(
        f"batch: {plan.global_batch} global, {plan.rows_per_replica} a replica (replicas {plan.replicas}, shards "
        f"{plan.shards}, rows a shard {plan.rows}); {plan.steps_per_epoch} steps an epoch, {plan.epochs} epochs"
    )
