"""What every job on a model does first: devices, environment, TensorFlow, strategy, data set, model, optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainbox.config import RunConfig
from trainbox.errors import DataError

if TYPE_CHECKING:
    import tensorflow as tf

    from trainbox.agreement import Agreement
    from trainbox.cluster import Cluster
    from trainbox.data.pipeline import Split
    from trainbox.data.prepare import DatasetInfo
    from trainbox.devices import Selection
    from trainbox.display import Display
    from trainbox.learner import Feed, Learner
    from trainbox.plan import Plan


def devices(config: RunConfig, display: Display) -> Selection:
    """Choose the devices and set the environment for them; TensorFlow may be imported from here on.

    Raises:
        DevicesError, UsageError: see `choosing.choose`, `environment.apply` and `choosing.check_libraries`.
    """
    from trainbox import environment
    from trainbox.jobs import choosing

    selection = choosing.choose(config, display)
    for line in environment.apply(config, selection, environ=os.environ):
        display.line(line)
    choosing.check_libraries(config, selection)
    return selection


def strategy(config: RunConfig, selection: Selection, *, cluster: Cluster | None = None) -> tf.distribute.Strategy:
    """Load and configure TensorFlow, and build the strategy over the devices, those of all workers of a `cluster`.

    Raises:
        DevicesError, UsageError: see `runtime.configure` and `strategy.build`.
    """
    from trainbox import loading

    loading.load_tensorflow()

    from trainbox import runtime
    from trainbox import strategy as strategies

    runtime.configure(config, selection)
    if cluster:
        return strategies.build_workers(config, selection, addresses=cluster.workers, index=cluster.index)
    return strategies.build(config, selection)


def dataset(config: RunConfig, display: Display) -> DatasetInfo:
    """The data set, prepared; TensorFlow is not loaded for it. Raises DataError."""
    from trainbox.data.prepare import prepare

    info = prepare(config.dataset, data_dir=config.data_dir, offline=config.offline, say=display.line)
    rows = ", ".join(f"{count:,} {split}" for split, count in info.splits.items())
    shape = "×".join(map(str, info.input_shape))
    display.line(f"data: {info.full_name}, {rows} rows of {shape}, {info.num_classes} classes, in {info.path}")
    return info


def split(info: DatasetInfo, name: str, *, say: Callable[[str], None] = lambda text: None) -> Split:
    """One split, decoded. Raises DataError."""
    from trainbox.data import arrays
    from trainbox.data.pipeline import Split

    inputs, labels = arrays.load(info, name, say=say)
    return Split(inputs=inputs, labels=labels)


def feed(split: Split, plan: Plan) -> Feed:
    """What gives the rows of `split` to the steps of `plan`."""
    from trainbox.data.pipeline import ResidentFeed

    return ResidentFeed(split, plan)


def training_splits(
    config: RunConfig, info: DatasetInfo, *, say: Callable[[str], None] = lambda text: None
) -> tuple[Split, Split | None]:
    """Training rows, and validation rows: held out of them, or the set's own, or None.

    Raises:
        DataError: there is no split `train`, or it is too small to hold anything out.
    """
    from trainbox.data.pipeline import hold_out

    train = split(info, "train", say=say)
    if config.validation_split:
        if len(train) < 2:
            raise DataError(
                f"data set {info.full_name} has {len(train)} training rows; --validation-split "
                f"{config.validation_split:g} needs two or more"
            )
        return hold_out(train, share=config.validation_split, seed=config.seed)
    return train, split(info, "validation", say=say) if "validation" in info.splits else None


def learner(
    config: RunConfig,
    strategy: tf.distribute.Strategy,
    info: DatasetInfo,
    plan: Plan,
    *,
    rows: Split | None,
    agreement: Agreement | None = None,
) -> Learner:
    """Model and optimizer with fresh weights, built in the strategy's scope, of workers that have an `agreement`.

    `rows` are the training rows, and may be missing where nothing is trained and nothing was measured of them.

    Raises:
        UsageError: the model or the optimizer's options cannot be used.
    """
    import keras

    from trainbox import models, optimizers, runtime
    from trainbox.agreement import Alone
    from trainbox.averaging import WeightAverage
    from trainbox.jobs import examples
    from trainbox.learner import Learner
    from trainbox.objective import classification

    runtime.keep_order_of_sums(shards=plan.shards, reproducible=config.reproducible)
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = models.build(config.model, input_shape=info.input_shape, num_classes=info.num_classes, seed=config.seed)
        optimizer = optimizers.build(config, steps_per_epoch=plan.steps_per_epoch, total_steps=plan.total_steps)
        optimizer.build(model.trainable_variables)
        average = WeightAverage.of(model, momentum=config.ema_momentum) if config.ema_momentum else None
        logits = models.gives_logits(model, input_shape=info.input_shape)
    optimizer = _compile(config, model, optimizer, gives_logits=logits)
    objective = classification(from_logits=logits)
    return Learner(
        strategy=strategy,
        model=model,
        optimizer=optimizer,
        objective=objective,
        plan=plan,
        gives_logits=logits,
        average=average,
        practice=examples.practice(config, info, rows) if rows else None,
        normalisation=examples.normalisation(config, info, rows) if rows else None,
        ordered=config.reproducible,
        agreement=agreement or Alone(),
    )


def _compile(config: RunConfig, model: Any, optimizer: Any, *, gives_logits: bool) -> Any:
    """Compile the model, and return the optimizer whose variables belong into a checkpoint."""
    from trainbox import fit

    if config.engine == "fit":
        return fit.prepare(model, optimizer, gives_logits=gives_logits)
    with model.distribute_strategy.scope():
        # Keras's callbacks expect a compiled model; loss scaling is trainbox's own.
        model.compile(
            optimizer=optimizer, loss="sparse_categorical_crossentropy", auto_scale_loss=False, jit_compile=False
        )
    return optimizer
