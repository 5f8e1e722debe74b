"""What every job on a model does first: devices, environment, TensorFlow, strategy, data set, model, optimizer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainbox.config import RunConfig
from trainbox.errors import DataError, UsageError

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
    """The data set, prepared; TensorFlow is not loaded for it. Raises DataError, and UsageError for a size."""
    from trainbox.data import splits
    from trainbox.data.prepare import prepare
    from trainbox.data.view import View

    info = prepare(
        config.dataset, data_dir=config.data_dir, view=View.of(config), offline=config.offline, say=display.line
    )
    for expression in filter(None, (config.train_split, config.validation_rows, config.test_split)):
        splits.parts(info, expression)
    rows = ", ".join(f"{count:,} {split}" for split, count in info.splits.items())
    shape = "×".join(map(str, info.input_shape))
    classes = f"{info.num_classes} classes" if info.num_classes else f"{info.features.label} to predict"
    display.line(f"data: {info.full_name}, {rows} rows of {shape}, {classes}, in {info.path}")
    for told in _notes(config, info):
        display.line(told)
    return info


def _notes(config: RunConfig, info: DatasetInfo) -> list[str]:
    """What the user may not expect of the rows."""
    from trainbox.data import splits

    notes, trained = [], config.train_split
    if info.features.left_out:
        notes.append(f"note: left out, because no model takes it as it is: {', '.join(info.features.left_out)}")
    if info.features.transposed:
        notes.append("note: its images lie on their side in the original files, and are set right when they are read")
    for word, other in (("validation", validation_rows(config, info)), ("test", test_rows(config, info))):
        if other and (both := splits.shared(info, trained, other)):
            notes.append(f"note: {both:,} rows are training rows ({trained}) and {word} rows ({other}) too")
    return notes


def validation_rows(config: RunConfig, info: DatasetInfo) -> str | None:
    """The split expression of the validation rows, where they are not held out of the training rows."""
    if config.validation_split:
        return None
    return config.validation_rows or ("validation" if "validation" in info.splits else None)


def test_rows(config: RunConfig, info: DatasetInfo) -> str | None:
    """The split expression of the test rows."""
    return config.test_split or ("test" if "test" in info.splits else None)


def used(config: RunConfig, info: DatasetInfo, *, say: Callable[[str], None] = lambda text: None) -> DatasetInfo:
    """The set with the classes that the run tells apart: as declared, or those that occur. Raises DataError."""
    if config.classes == "declared":
        return info
    from trainbox.data import labels

    found = labels.used(info, say=say)
    say(f"classes: {found.num_classes} of the {info.num_classes} declared occur, and are numbered from 0")
    return found


def split(info: DatasetInfo, expression: str, *, say: Callable[[str], None] = lambda text: None) -> Split:
    """The rows that a split expression names, decoded. Raises DataError."""
    from trainbox.data import labels
    from trainbox.data.pipeline import Split

    inputs, truth, rows = labels.load(info, expression, say=say)
    return Split(inputs=inputs, labels=truth, rows=rows)


def feed(split: Split, plan: Plan) -> Feed:
    """What gives the rows of `split` to the steps of `plan`."""
    from trainbox.data.pipeline import ResidentFeed

    return ResidentFeed(split, plan)


def training_splits(
    config: RunConfig, info: DatasetInfo, *, say: Callable[[str], None] = lambda text: None
) -> tuple[Split, Split | None]:
    """Training rows, and validation rows: held out of them, or the set's own, or None.

    Raises:
        DataError: they cannot be read, or are too few to hold anything out.
    """
    from trainbox.data.pipeline import hold_out

    train = split(info, config.train_split, say=say)
    if config.validation_split:
        if len(train) < 2:
            raise DataError(
                f"data set {info.full_name} has {len(train)} training rows; --validation-split "
                f"{config.validation_split:g} needs two or more"
            )
        return hold_out(train, share=config.validation_split, seed=config.seed)
    held_out = validation_rows(config, info)
    return train, split(info, held_out, say=say) if held_out else None


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

    from trainbox import optimizers, runtime
    from trainbox.agreement import Alone
    from trainbox.averaging import WeightAverage
    from trainbox.jobs import examples
    from trainbox.learner import Learner
    from trainbox.objective import classification, regression

    runtime.keep_order_of_sums(shards=plan.shards, reproducible=config.reproducible)
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model, logits = _model(config, info)
        optimizer = optimizers.build(config, steps_per_epoch=plan.steps_per_epoch, total_steps=plan.total_steps)
        optimizer.build(model.trainable_variables)
        average = WeightAverage.of(model, momentum=config.ema_momentum) if config.ema_momentum else None
    return Learner(
        strategy=strategy,
        model=model,
        optimizer=_compile(config, model, optimizer, info, gives_logits=logits),
        objective=classification(from_logits=logits) if info.num_classes else regression(),
        plan=plan,
        gives_logits=logits,
        average=average,
        practice=examples.practice(config, info, rows) if rows else None,
        normalisation=examples.normalisation(config, info, rows) if rows else None,
        ordered=config.reproducible,
        agreement=agreement or Alone(),
    )


def _model(config: RunConfig, info: DatasetInfo) -> tuple[Any, bool]:
    """The model, and whether it gives logits. One that predicts a number has one output, as with a single class."""
    from trainbox import models

    shape = info.input_shape
    model = models.build(config.model, input_shape=shape, num_classes=info.num_classes or 1, seed=config.seed)
    return model, bool(info.num_classes) and models.gives_logits(model, input_shape=shape)


def _compile(config: RunConfig, model: Any, optimizer: Any, info: DatasetInfo, *, gives_logits: bool) -> Any:
    """Compile the model, and return the optimizer whose variables belong into a checkpoint."""
    from trainbox import fit

    if config.engine == "fit":
        if info.num_classes is None:
            raise UsageError(
                f"--engine fit is for classes, and {info.features.label} of {info.full_name} is a number; leave it out"
            )
        return fit.prepare(model, optimizer, gives_logits=gives_logits)
    with model.distribute_strategy.scope():
        # Keras's callbacks expect a compiled model; loss scaling is trainbox's own.
        loss = "sparse_categorical_crossentropy" if info.num_classes else "mean_squared_error"
        model.compile(optimizer=optimizer, loss=loss, auto_scale_loss=False, jit_compile=False)
    return optimizer
