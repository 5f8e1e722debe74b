"""Whether a run is new, goes on or is complete, and whether what is asked for is still the same run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox import manifest, settings
from trainbox import plan as plans
from trainbox.config import RunConfig, momentary, options
from trainbox.errors import UsageError
from trainbox.plan import Plan
from trainbox.settings import Settings

if TYPE_CHECKING:
    from trainbox.data.prepare import DatasetInfo

CHECKPOINTS = "checkpoints"
# These change how far a run goes or what it leaves behind, not what a step does.
FREE = (
    *momentary(),
    "run",
    "epochs",
    "early_stopping",
    "callbacks",
    "checkpoint_epochs",
    "checkpoint_steps",
    "checkpoint_minutes",
    "keep",
    "log_steps",
    "tensorboard",
    "first_step_seconds",
)
# These are compared by what they come to, as a plan.
PLANNED = ("batch_size", "batch_size_per_replica", "shards")


def completed(run_dir: Path, config: RunConfig) -> str | None:
    """What to say of a run that has nothing left to do, or None.

    Raises:
        UsageError: it is complete with another batch or other shards than `config` has.
        RunFailedError: its manifest is damaged.
    """
    if not (run_dir / manifest.FILE).exists():
        return None
    record = manifest.read(run_dir)
    result, plan = record.get("result"), record.get("plan")
    if not result or (result["epochs_done"] < config.epochs and not result.get("stopped_early")):
        return None
    if plan:
        # On the devices that it had: what was said for each of them comes to the same.
        now = plans.make(config, replicas=plan["replicas"], examples=plan["examples"], shards=plan["shards"])
        check_plan(run_dir, now, plan)
    done = result["epochs_done"]
    if result.get("stopped_early"):
        return f"already complete: stopped early after {done} epochs"
    return f"already complete ({done}/{config.epochs})"


def check_words(run_dir: Path, now: Settings) -> None:
    """Refuse options that would make another run of the one in `run_dir`, if that has anything to go on from.

    Raises:
        UsageError: naming each option that differs, with both values.
    """
    if not (run_dir / settings.CONFIG_FILE).exists() or not any((run_dir / CHECKPOINTS).glob("*")):
        return
    before = settings.load(run_dir).config
    different = [
        f"--{name.replace('_', '-')} was {getattr(before, name)} and is {getattr(now.config, name)}"
        for name in _deciding(before)
        if getattr(before, name) != getattr(now.config, name)
    ]
    _refuse(run_dir, different)


def digest(config: RunConfig) -> str:
    """SHA-256 over the options that decide a result by themselves, those aside that have their default.

    So it stays what it is when a later version has more options.
    """
    default = RunConfig()
    names = [name for name in _deciding(config) if getattr(config, name) != getattr(default, name)]
    told = {name: getattr(config, name) for name in names}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def check_digest(run_dir: Path, config: RunConfig, *, before: str) -> None:
    """Refuse options other than those of the checkpoint (their digest `before`), whatever became of `config.json`.

    Raises:
        UsageError: an option differs that `check_words` could not see.
    """
    now = digest(config)
    if before != now:
        _refuse(run_dir, [f"the digest of its options was {before[:12]} and is {now[:12]}"])


def check_plan(run_dir: Path, plan: Plan, saved: Mapping[str, Any]) -> None:
    """Refuse a batch, shards or rows other than those that the checkpoint was trained with.

    Raises:
        UsageError: naming what differs, with both values.
    """
    words = {"global_batch": "the global batch", "shards": "the number of shards", "examples": "the training rows"}
    different = [
        f"{said} was {saved[name]} and is {getattr(plan, name)}"
        for name, said in words.items()
        if saved[name] != getattr(plan, name)
    ]
    _refuse(run_dir, different)


def check_data(run_dir: Path, info: DatasetInfo) -> None:
    """Refuse a data set other than the one that the manifest of the run in `run_dir` names, if it has a manifest.

    Raises:
        UsageError: the data set, its version or one of its files differs; both are named.
        RunFailedError: the manifest is damaged.
    """
    if not (run_dir / manifest.FILE).exists():
        return
    before = manifest.read(run_dir).get("data") or {}
    name, files = before.get("full_name", info.full_name), before.get("checksums", info.checksums)
    different = [f"the data set was {name} and is {info.full_name}"] if name != info.full_name else []
    different += [
        f"{file} of the data set had SHA-256 {files.get(file, 'none')} and has {info.checksums.get(file, 'none')}"
        for file in dict.fromkeys([*files, *info.checksums])
        if files.get(file) != info.checksums.get(file)
    ]
    _refuse(run_dir, different[:1])


def check_code(run_dir: Path, config: RunConfig, *, before: str | None, now: str | None) -> None:
    """Refuse the user's own model file if it is not the one that the run began with (SHA-256 before and now).

    Raises:
        UsageError: it differs.
    """
    if before != now:
        _refuse(run_dir, [f"the file of --model {config.model} has changed"])


def _deciding(config: RunConfig) -> list[str]:
    # Other threads add in another order, which matters where bits are promised.
    bits = ("threads",) if config.reproducible else ()
    return [name for name in options() if name in bits or (name not in FREE and name not in PLANNED)]


def _refuse(run_dir: Path, different: list[str]) -> None:
    if different:
        raise UsageError(
            f"{run_dir} holds a run that cannot go on like this: {'; '.join(different)}; say it as it was, go "
            "on in a new run with --fork NAME, or begin another --run"
        )
