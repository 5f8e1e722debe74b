"""How a run's words change its examples: what training does to them, and what it measures of them first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trainbox import augment, changes, measured
from trainbox.config import RunConfig
from trainbox.errors import UsageError
from trainbox.normalisation import Normalisation
from trainbox.practice import Practice

if TYPE_CHECKING:
    from trainbox.data.pipeline import Split
    from trainbox.data.prepare import DatasetInfo
    from trainbox.learner import Learner


def practice(config: RunConfig, info: DatasetInfo, rows: Split) -> Practice | None:
    """What training on `rows` does to them, if anything.

    Raises:
        UsageError: they are no images, or have no classes, or not those that are weighted.
    """
    wanted = {name: getattr(config, name) for name in ("augment", "mixup", "cutmix")}
    for name, value in wanted.items():
        if value is not None:
            _need_images(f"--{name} {value}", info, rows)
    made = changes.parse(config.augment)
    augment.refuse(made, input_shape=rows.inputs.shape[1:])
    weights = _class_weights(config, info, rows)
    if not (made or config.mixup or config.cutmix or weights):
        return None
    return Practice(changes=made, mixup=config.mixup, cutmix=config.cutmix, class_weights=weights)


def normalisation(config: RunConfig, info: DatasetInfo, rows: Split) -> Normalisation | None:
    """What `--normalise` takes out of all inputs, measured on these training rows.

    Raises:
        UsageError: they are no images.
    """
    if config.normalise == "none":
        return None
    _need_images(f"--normalise {config.normalise}", info, rows)
    mean, variance = measured.channels(rows.inputs, _numbers(rows))
    return Normalisation(input_shape=rows.inputs.shape[1:], mean=mean, variance=variance)


def numbers(learner: Learner) -> dict[str, Any]:
    """What was measured, or said, of the training rows, for the manifest."""
    found: dict[str, Any] = {}
    if learner.normalisation:
        found |= {"mean": learner.normalisation.mean, "variance": learner.normalisation.variance}
    if learner.practice and learner.practice.class_weights:
        found["class_weights"] = dict(enumerate(learner.practice.class_weights))
    return found


def _class_weights(config: RunConfig, info: DatasetInfo, rows: Split) -> tuple[float, ...] | None:
    asked = changes.parse_weights(config.class_weights)
    if asked == changes.NONE:
        return None
    classes = info.num_classes
    if not classes:
        raise UsageError(
            f"--class-weights {config.class_weights} needs classes, and the label of {info.full_name} is a number; "
            "leave it out"
        )
    if isinstance(asked, str):
        return measured.balanced(rows.labels[_numbers(rows)], classes)
    for number in asked:
        if number >= classes:
            raise UsageError(
                f"--class-weights names class {number}, and {info.full_name} has the classes 0 to {classes - 1}; name "
                "one of these"
            )
    return tuple(asked.get(number, 1.0) for number in range(classes))


def _numbers(rows: Split) -> Any:
    return rows.numbered(np.arange(len(rows), dtype=np.int32))


def _need_images(option: str, info: DatasetInfo, rows: Split) -> None:
    inputs = rows.inputs
    if inputs.dtype != np.uint8 or inputs.ndim != 4:
        raise UsageError(
            f"{option} needs images, and the inputs of {info.full_name} are {inputs.dtype} of shape "
            f"{inputs.shape[1:]}; leave it out"
        )
