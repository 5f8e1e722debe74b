"""The loop of a run, with everything that it works on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from trainbox import blocks, callbacks, evaluate, fit
from trainbox.cadence import Cadence
from trainbox.config import RunConfig
from trainbox.data.pipeline import ResidentRows, Split, epoch_order
from trainbox.display import Display
from trainbox.learner import Learner, seed_positions
from trainbox.loop import Loop
from trainbox.metrics import MetricWriter
from trainbox.progress import Progress
from trainbox.step import TrainStep
from trainbox.trace import TraceWriter


def build(
    config: RunConfig,
    learner: Learner,
    progress: Progress,
    *,
    rows: Split,
    held_out: Split | None,
    save: Callable[[Progress], None],
    await_saved: Callable[[], None],
    check_stop: Callable[[], None],
    writer: MetricWriter,
    trace: TraceWriter | None,
    display: Display,
) -> Loop:
    """The loop over `rows` from `progress` on, validating on `held_out`; its steps are traced where there is a `trace`.

    Raises:
        UsageError: the user's callbacks or the model's loss cannot be used.
    """
    resident = ResidentRows(rows)
    by_fit = config.engine == "fit"
    return Loop(
        plan=learner.plan,
        seed=config.seed,
        statistics=learner.statistics,
        seed_variables=len(seed_positions(learner.model)),
        block=None if by_fit else _block(config, learner, resident, traced=trace is not None),
        fit=_fit(config, learner, resident, check_stop) if by_fit else None,
        validate=_validate(learner, held_out, check_stop) if held_out else None,
        save=save,
        await_saved=await_saved,
        check_stop=check_stop,
        learning_rate=_rate(learner.optimizer),
        writer=writer,
        trace=trace,
        display=display,
        callbacks=callbacks.load(config.callbacks, model=learner.model, epochs=config.epochs),
        progress=progress,
        log_steps=config.log_steps,
        checkpoint_epochs=config.checkpoint_epochs,
        cadence=Cadence(steps=config.checkpoint_steps, minutes=config.checkpoint_minutes),
        patience=config.early_stopping,
    )


def _block(config: RunConfig, learner: Learner, rows: ResidentRows, *, traced: bool) -> Callable[..., Any]:
    return blocks.train_block(TrainStep(learner, rows, loss_scaling=config.precision == "float16", traced=traced))


def _fit(config: RunConfig, learner: Learner, rows: ResidentRows, check_stop: Callable[[], None]) -> fit.EpochByFit:
    return fit.EpochByFit(
        learner.model,
        rows,
        plan=learner.plan,
        order=lambda epoch: epoch_order(learner.plan, seed=config.seed, epoch=epoch),
        before_batch=lambda batch: check_stop(),
    )


def _validate(learner: Learner, held_out: Split, check_stop: Callable[[], None]) -> Callable[[], dict[str, float]]:
    evaluator = evaluate.Evaluator(learner, ResidentRows(held_out), examples=len(held_out))
    return partial(evaluator, between=check_stop)


def _rate(optimizer: Any) -> Callable[[int], float]:
    """The learning rate of an optimizer step: of the schedule, or what is set now."""
    # Keras keeps a schedule here; the public property evaluates it at the optimizer's own step, the end of a block.
    schedule = getattr(optimizer, "_learning_rate", None)
    if callable(schedule):
        return lambda step: float(schedule(step))
    return lambda step: float(optimizer.learning_rate.numpy())
