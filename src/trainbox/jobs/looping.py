"""The loop of a run, with everything that it works on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from trainbox import blocks, callbacks, determinism, evaluate, fit, strategy
from trainbox.batch_split import BatchSplitStep
from trainbox.cadence import Cadence
from trainbox.config import RunConfig
from trainbox.data.pipeline import epoch_order
from trainbox.display import Display
from trainbox.first_step import FirstStepWatch
from trainbox.learner import Feed, Learner
from trainbox.loop import Loop, Trace, Writer
from trainbox.monitor import Monitor
from trainbox.progress import Progress
from trainbox.step import TrainStep
from trainbox.towers import TowerStep


def build(
    config: RunConfig,
    learner: Learner,
    progress: Progress,
    *,
    feed: Feed,
    held_out: Feed | None,
    save: Callable[[Progress], None],
    await_saved: Callable[[], None],
    check_stop: Callable[[], None],
    writer: Writer,
    trace: Trace | None,
    display: Display,
    monitor: Monitor,
    watch: FirstStepWatch,
) -> Loop:
    """The loop over the rows of `feed` from `progress` on, validating on those of `held_out`.

    Its steps are traced where there is a `trace`. `watch` is told of the first step's phases and of its
    end, when the `monitor` begins to count for the whole run.

    Raises:
        UsageError: the user's callbacks or the model's loss cannot be used.
    """
    by_fit = config.engine == "fit"
    return Loop(
        plan=learner.plan,
        feed=feed,
        seed=config.seed,
        statistics=learner.statistics,
        seeds=learner.seeds,
        block=None if by_fit else _block(config, learner, feed, trace is not None, monitor, watch),
        fit=_fit(config, learner, feed, check_stop, watch) if by_fit else None,
        validate=_validate(learner, held_out, check_stop) if held_out else None,
        save=save,
        await_saved=await_saved,
        check_stop=check_stop,
        learning_rate=_rate(learner.optimizer),
        writer=writer,
        trace=trace,
        display=display,
        devices=monitor,
        callbacks=callbacks.load(config.callbacks, model=learner.model, epochs=config.epochs),
        progress=progress,
        log_steps=config.log_steps,
        checkpoint_epochs=config.checkpoint_epochs,
        cadence=Cadence(steps=config.checkpoint_steps, minutes=config.checkpoint_minutes),
        patience=config.early_stopping,
        pace=blocks.Pace(agree=learner.agreed_steps),
    )


def training_step(config: RunConfig, learner: Learner, feed: Feed, *, traced: bool = False) -> TrainStep:
    """The step of `--strategy`. Raises UsageError if the model's loss or one of its layers cannot be used."""
    half = config.precision == "float16"
    by_hand = {"towers": TowerStep, "batch-split": BatchSplitStep}.get(config.strategy)
    if by_hand is None:
        return TrainStep(learner, feed, loss_scaling=half, traced=traced)
    determinism.refuse_layers(learner.model, option=f"--strategy {config.strategy}", manner=" of tf.distribute alone")
    devices = strategy.device_names(learner.plan.replicas)
    return by_hand(learner, feed, devices=devices, loss_scaling=half, traced=traced)


def _block(
    config: RunConfig, learner: Learner, feed: Feed, traced: bool, monitor: Monitor, watch: FirstStepWatch
) -> Callable[..., Any]:
    """A block of steps, whose first call is watched."""
    block = blocks.train_block(training_step(config, learner, feed, traced=traced))
    first = True

    def call(batch: Any, scale_state: Any) -> tuple[Any, ...]:
        nonlocal first
        if not first:
            return block(batch, scale_state)
        first = False
        watch.phase("compiling the step")
        block.get_concrete_function()  # type: ignore[attr-defined]
        several = " and the first all-reduce" if learner.plan.replicas > 1 else ""
        watch.phase(f"in the first step, with the loading of its kernels{several}")
        results = block(batch, scale_state)
        results[0].numpy()  # not before it is really done
        watch.done()
        monitor.begin_whole()
        return results

    return call


def _fit(
    config: RunConfig, learner: Learner, feed: Feed, check_stop: Callable[[], None], watch: FirstStepWatch
) -> fit.EpochByFit:
    watch.phase("in the first batch of Keras's fit, with its compilation")

    def before_batch(batch: int) -> None:
        if batch:
            watch.done()
        check_stop()

    return fit.EpochByFit(
        learner.model,
        feed,
        order=lambda epoch: epoch_order(learner.plan, seed=config.seed, epoch=epoch),
        before_batch=before_batch,
        to_inputs=learner.inputs,
    )


def _validate(learner: Learner, held_out: Feed, check_stop: Callable[[], None]) -> Callable[[], dict[str, float]]:
    return partial(evaluate.Evaluator(learner, held_out), between=check_stop)


def _rate(optimizer: Any) -> Callable[[int], float]:
    """The learning rate of an optimizer step: of the schedule, or what is set now."""
    # Keras keeps a schedule here; the public property evaluates it at the optimizer's own step, the end of a block.
    schedule = getattr(optimizer, "_learning_rate", None)
    if callable(schedule):
        return lambda step: float(schedule(step))
    return lambda step: float(optimizer.learning_rate.numpy())
