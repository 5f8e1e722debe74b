"""From the run's words to a Keras optimizer and its learning-rate schedule."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from trainbox.config import RunConfig
from trainbox.errors import UsageError

HAS_MOMENTUM = ("sgd", "rmsprop")


@keras.saving.register_keras_serializable(package="trainbox")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """Learning rate of each step: `peak` times the shape of `kind`, times a linear warm-up from 0.

    With step s counted from 0, W warm-up steps and T steps in all:

    - constant: 1
    - cosine: (1 + cos(pi (s - W) / (T - W))) / 2, from 1 at the end of the warm-up to 0 at the end of the run
    - step: `decay_factor` to the power of the whole number of `decay_steps` in s

    and the warm-up is min(1, s / W). Computed in float64, returned in float32.
    """

    def __init__(
        self,
        *,
        kind: str,
        peak: float,
        warmup_steps: int,
        total_steps: int,
        decay_steps: int = 1,
        decay_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.decay_steps = decay_steps
        self.decay_factor = decay_factor

    def __call__(self, step: Any) -> Any:
        """Learning rate of step number `step` (an integer or an integer scalar tensor): float32 scalar tensor."""
        now = ops.cast(step, "float64")
        rate = self.peak * self._shape(now)
        if self.warmup_steps:
            rate = rate * ops.minimum(now / self.warmup_steps, 1.0)
        return ops.cast(rate, "float32")

    def _shape(self, now: Any) -> Any:
        if self.kind == "cosine":
            share = (now - self.warmup_steps) / (self.total_steps - self.warmup_steps)
            return (1.0 + ops.cos(math.pi * ops.clip(share, 0.0, 1.0))) / 2.0
        if self.kind == "step":
            return ops.power(ops.convert_to_tensor(self.decay_factor, "float64"), ops.floor(now / self.decay_steps))
        return ops.ones_like(now)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            "kind": self.kind,
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "decay_steps": self.decay_steps,
            "decay_factor": self.decay_factor,
        }


def build(config: RunConfig, *, steps_per_epoch: int, total_steps: int) -> keras.optimizers.Optimizer:
    """The optimizer of a run, without variables; create it, and build it, in the scope of the strategy.

    Weight decay is Keras's: every step takes learning rate times `--weight-decay` of each weight off it.

    Raises:
        UsageError: a warm-up as long as the run.
    """
    kinds = {
        "sgd": keras.optimizers.SGD,
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "rmsprop": keras.optimizers.RMSprop,
    }
    arguments: dict[str, Any] = {
        "learning_rate": learning_rate(config, steps_per_epoch=steps_per_epoch, total_steps=total_steps),
        "clipnorm": config.clip_norm,
        "global_clipnorm": config.global_clip_norm,
    }
    if config.optimizer in HAS_MOMENTUM:
        arguments["momentum"] = float(config.momentum)
    if config.weight_decay or config.optimizer == "adamw":
        arguments["weight_decay"] = float(config.weight_decay)
    return kinds[config.optimizer](**arguments)


def learning_rate(config: RunConfig, *, steps_per_epoch: int, total_steps: int) -> float | Schedule:
    """A `Schedule`, or the number itself where it never changes, so that Keras's callbacks can set it.

    Raises:
        UsageError: a warm-up as long as the run.
    """
    warmup_steps = round(config.warmup_epochs * steps_per_epoch)
    if config.schedule == "constant" and not warmup_steps:
        return float(config.learning_rate)
    if warmup_steps >= total_steps:
        raise UsageError(
            f"--warmup-epochs {config.warmup_epochs:g} is {warmup_steps} steps and the run has {total_steps}; "
            "use fewer, or more --epochs"
        )
    return Schedule(
        kind=config.schedule,
        peak=float(config.learning_rate),
        warmup_steps=warmup_steps,
        total_steps=total_steps,
        decay_steps=max(round(config.decay_epochs * steps_per_epoch), 1),
        decay_factor=float(config.decay_factor),
    )
