"""Which options exclude or need one another, as far as it can be known before devices and data are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainbox import changes
from trainbox.config import AUTO, RunConfig
from trainbox.errors import UsageError

EXCLUSIVE = (
    ("batch_size", "batch_size_per_replica"),
    ("clip_norm", "global_clip_norm"),
    ("gpus", "devices"),
    ("mixup", "cutmix"),
)


@dataclass(frozen=True, kw_only=True)
class Need:
    """`option`, once given, makes sense only where `holds`; `remedy` ends the message."""

    option: str
    holds: Callable[[RunConfig], bool]
    remedy: str


BY_HAND = "cannot be done by --engine fit; use --engine trainbox"
NEEDS = (
    Need(option="logical_devices", holds=lambda c: c.device == "cpu", remedy="needs --device cpu"),
    Need(option="gpus", holds=lambda c: c.device != "cpu", remedy="contradicts --device cpu; drop one"),
    Need(option="devices", holds=lambda c: c.device != "cpu", remedy="contradicts --device cpu; drop one"),
    Need(
        option="all_reduce",
        holds=lambda c: c.all_reduce != "nccl" or c.device != "cpu",
        remedy="nccl needs GPUs; with --device cpu use hierarchical or one-device",
    ),
    Need(
        option="all_reduce",
        holds=lambda c: c.all_reduce == "auto" or c.strategy in ("auto", "mirrored", "multi-worker"),
        remedy="is how mirrored replicas add; leave it out, or use --strategy mirrored",
    ),
    Need(
        option="strategy",
        holds=lambda c: c.engine != "fit" or c.strategy not in ("towers", "batch-split"),
        remedy="is trainbox's own; leave --engine fit out, or use --strategy mirrored",
    ),
    Need(
        option="strategy",
        holds=lambda c: c.strategy != "one" or max(c.gpus or 1, c.logical_devices or 1) == 1,
        remedy="one is a single device; leave out --gpus and --logical-devices, or --strategy",
    ),
    Need(
        option="strategy",
        holds=lambda c: c.strategy != "one" or "," not in (c.devices or ""),
        remedy="one is a single device; name one in --devices, or leave out --strategy",
    ),
    Need(
        option="worker_index",
        holds=lambda c: c.workers is not None,
        remedy="needs --workers, the list that it counts in",
    ),
    Need(
        option="workers",
        holds=lambda c: c.engine != "fit",
        remedy="cannot be used by --engine fit, which fails on several workers; use --engine trainbox",
    ),
    Need(
        option="momentum",
        holds=lambda c: not c.momentum or c.optimizer in ("sgd", "rmsprop"),
        remedy="needs --optimizer sgd or rmsprop",
    ),
    Need(option="decay_epochs", holds=lambda c: c.schedule == "step", remedy="needs --schedule step"),
    Need(option="decay_factor", holds=lambda c: c.schedule == "step", remedy="needs --schedule step"),
    Need(
        option="warmup_epochs",
        holds=lambda c: c.warmup_epochs <= c.epochs,
        remedy="is longer than the run; lower it or raise --epochs",
    ),
    Need(
        option="reproducible",
        holds=lambda c: not c.reproducible or c.engine != "fit",
        remedy="cannot be kept by --engine fit; use --engine trainbox",
    ),
    Need(
        option="ema_momentum",
        holds=lambda c: c.engine != "fit",
        remedy="cannot be followed by --engine fit; use --engine trainbox",
    ),
    Need(
        option="batch_size",
        holds=lambda c: c.batch_size != AUTO or not c.reproducible,
        remedy="auto depends on the memory of the moment, and --reproducible on the batch; give a number",
    ),
    Need(
        option="batch_size",
        holds=lambda c: c.batch_size != AUTO or c.engine != "fit",
        remedy="auto is tried with trainbox's own steps, not with --engine fit; give a number",
    ),
    Need(
        option="cpu_baseline",
        holds=lambda c: c.cpu_baseline == "native" or c.reproducible,
        remedy="needs --reproducible, without which bits differ from run to run",
    ),
    Need(
        option="cpu_baseline",
        holds=lambda c: c.cpu_baseline == "native" or c.precision == "float32",
        remedy="needs --precision float32: oneDNN has no 16-bit kernels that all these CPUs share",
    ),
    *(Need(option=name, holds=lambda c: c.engine != "fit", remedy=BY_HAND) for name in ("augment", "mixup", "cutmix")),
    Need(
        option="class_weights",
        holds=lambda c: c.engine != "fit" or c.class_weights.strip() == changes.NONE,
        remedy=BY_HAND,
    ),
    Need(
        option="shards",
        holds=lambda c: c.engine != "fit",
        remedy="cannot be followed by --engine fit; use --engine trainbox",
    ),
    Need(
        option="checkpoint_steps",
        holds=lambda c: c.engine != "fit" or not c.checkpoint_steps,
        remedy="cannot be kept by --engine fit, which saves after each epoch; use --engine trainbox",
    ),
    Need(
        option="checkpoint_minutes",
        holds=lambda c: c.engine != "fit" or not c.checkpoint_minutes,
        remedy="cannot be kept by --engine fit, which saves after each epoch; use --engine trainbox",
    ),
)


def check(config: RunConfig, sources: Mapping[str, str]) -> None:
    """Raises UsageError for the first combination that cannot be followed, naming where its options come from.

    So it does for a list whose words cannot be understood.
    """
    given = {name for name, source in sources.items() if source != "default"}
    for first, second in EXCLUSIVE:
        if first in given and second in given:
            raise UsageError(f"{said(first, sources)} and {said(second, sources)} exclude each other; give one of them")
    for need in NEEDS:
        if need.option in given and not need.holds(config):
            raise UsageError(f"{said(need.option, sources)} {need.remedy}")
    changes.parse(config.augment, subject=said("augment", sources))
    changes.parse_weights(config.class_weights, subject=said("class_weights", sources))


def said(name: str, sources: Mapping[str, str]) -> str:
    """An option as its flag, with its source where that is not the flag."""
    flag = "--" + name.replace("_", "-")
    return flag if sources[name].startswith("flag") else f"{flag} ({sources[name]})"
