"""The job of `trainbox train`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox import display as displays
from trainbox import manifest, models, plugin, processor, run_folder, settings
from trainbox.config import RunConfig
from trainbox.display import Display
from trainbox.errors import RunFailedError
from trainbox.jobs import batching, failing, forking, resume, setting_up, watching
from trainbox.jobs import crew as crews
from trainbox.jobs.crew import Crew
from trainbox.progress import Progress
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
    with crews.gathered(config) as crew:
        if crew.cluster:
            display.line(f"workers: {crew.cluster.notice}")
        if crew.leads:
            _lead(words, crew, parent, command=command, display=display)
        else:
            _run(words, Start(crew=crew, command=command), display=display)


def _lead(words: Settings, crew: Crew, parent: Path | None, *, command: list[str], display: Display) -> None:
    """A run, in its folder, which no other process may write meanwhile."""
    config = words.config
    folder = RunFolder.create(config.output_dir, run_folder.name(config, os.environ, datetime.now()))
    with folder.lock():
        display.line(f"run: {folder.path.name}, in {folder.path}")
        words = batching.recalled(folder.path, words)
        resume.check_words(folder.path, words)
        finished = resume.completed(folder.path, words.config)
        if finished:
            crew.dismiss(config, finished)
            display.line(finished)
            return
        with _logged(display, folder.path) as screen:
            start = Start(crew=crew, command=command, run_dir=folder.path, parent=parent)
            _run(words, start, display=screen)


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a run, by `command`, as one of a `crew`.

    Only who leads it has `run_dir`, the run's folder; with nothing there to go on from, the run begins from `parent`.
    """

    crew: Crew
    command: list[str]
    run_dir: Path | None = None
    parent: Path | None = None


def _run(words: Settings, start: Start, *, display: Display) -> None:
    """One start of a run, from its words to its result."""
    config, crew = words.config, start.crew
    screen = display if crew.leads else displays.open_display("plain", stream=None, environ={})
    selection = setting_up.devices(config, screen)
    processor.refuse(config, selection)
    if config.engine == "fit":
        from trainbox import fit

        fit.refuse(config, replicas=selection.replicas)
    met = crew.meet(config, selection, told={"run": start.run_dir.name if start.run_dir else None})
    if not crew.leads:
        display.line(met.get("finished") or f"run: {met['run']}, of which the chief tells")
        if "finished" in met:
            return
    # Before TensorFlow, which takes seconds to load: a wrong name is told soon, and a signal is answered at once.
    info = setting_up.dataset(config, screen)
    if crew.cluster:
        batching.refuse(config)
    else:
        words = batching.found(words, selection=selection, info=info, display=display)
    _prepare(words, start, selection=selection, info=info, display=screen)


def _prepare(words: Settings, start: Start, *, selection: Selection, info: DatasetInfo, display: Display) -> None:
    """From devices and data to the plan of a run, and on."""
    config, crew = words.config, start.crew
    strategy = setting_up.strategy(config, selection, cluster=crew.cluster)

    from trainbox import stopping
    from trainbox.plan import Plan

    stop = stopping.StopRequest()
    stop.install()
    agreement = crew.agree(strategy)
    crew.check_data(info)
    info = setting_up.used(config, info, say=display.line)
    splits = setting_up.training_splits(config, info, say=display.line)
    saved = None
    if start.run_dir:
        start, saved = _found(start, start.run_dir, config, info, display)
    replicas = selection.replicas * crew.size

    def make() -> dict[str, int]:
        assert start.run_dir is not None
        made = _plan(
            config, start.run_dir, saved, start.parent, replicas=replicas, examples=len(splits[0]), display=display
        )
        return dataclasses.asdict(made)

    _train(
        words, start, saved, selection=selection, strategy=strategy, info=info, splits=splits,
        plan=Plan(**agreement.share(make)), check_stop=crew.check_stop(stop), display=display,
    )  # fmt: skip


def _found(
    start: Start, run_dir: Path, config: RunConfig, info: DatasetInfo, display: Display
) -> tuple[Start, Checkpoint | None]:
    """The checkpoint that the run goes on from, if there is one: its own, or else that of its parent."""
    from trainbox import checkpoint

    saved = checkpoint.latest(run_dir / resume.CHECKPOINTS, tell=display.line)
    if saved:
        resume.check_data(run_dir, info)
        return dataclasses.replace(start, parent=None), saved
    return start, forking.origin(start.parent, config, tell=display.line) if start.parent else None


def _train(
    words: Settings, start: Start, saved: Checkpoint | None, *,
    selection: Selection, strategy: tf.distribute.Strategy, info: DatasetInfo, splits: tuple[Split, Split | None],
    plan: Plan, check_stop: Callable[[], None], display: Display,
) -> None:  # fmt: skip
    """From the plan of a run to its result."""
    from trainbox.jobs import examples, finishing, looping, recording

    config, crew, agreement = words.config, start.crew, start.crew.agree(strategy)
    with watching.begin(config, selection, display) as watched, failing.told(config, plan):
        watched.first_step.phase("building the model")
        learner = setting_up.learner(config, strategy, info, plan, rows=splits[0], agreement=agreement)
        _announce(config, learner, display)
        saver = recording.saver(start.run_dir, config, learner)

        def enter() -> dict[str, Any]:
            described = manifest.describe(
                config=config, sources=words.sources, selection=selection, dataset=info, plan=plan,
                command=start.command, workers=crew.size, examples=examples.numbers(learner),
            )  # fmt: skip
            return _enter(words, start, saved, saver=saver, described=described, display=display).as_dict()

        progress = Progress.from_dict(agreement.share(enter))
        agreement.align(learner.variables)
        with recording.opened(start.run_dir, config, progress) as written, _fed(splits, plan) as feeds:
            shown = progress.shown(plan.steps_per_epoch)
            display.begin(epochs=plan.epochs, steps_per_epoch=plan.steps_per_epoch, step=shown)
            loop = looping.build(
                config, learner, progress, feed=feeds[0], held_out=feeds[1], save=saver.save, await_saved=saver.wait,
                check_stop=_either(saver.check, check_stop), writer=written.metrics, trace=written.trace,
                display=display, monitor=watched.monitor, watch=watched.first_step,
            )  # fmt: skip
            loop.run()
            verdict = None if config.engine == "fit" else watched.verdict(loop.timings, plan)
            tested = finishing.test(
                learner, info, setting_up.test_rows(config, info), between=loop.check_stop_at_end, display=display
            )
            if start.run_dir:
                finishing.finish(
                    start.run_dir, learner, progress, written.metrics, tested=tested, verdict=verdict, display=display
                )


def _enter(
    words: Settings, start: Start, saved: Checkpoint | None, *,
    saver: Saver, described: dict[str, Any], display: Display,
) -> Progress:  # fmt: skip
    """Take up the run where it is, with its words and what it runs on in its folder."""
    run_dir = start.run_dir
    assert run_dir is not None
    if saved and start.parent:
        progress = forking.begin(start.parent, run_dir, saved, saver, config=words.config, display=display)
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
