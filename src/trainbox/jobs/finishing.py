"""The end of a run: its test, its model as a file, and its result."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainbox import checkpoint, evaluate, export, manifest, metrics
from trainbox.bottleneck import Verdict
from trainbox.data.prepared import DatasetInfo
from trainbox.display import Display, number
from trainbox.jobs import setting_up
from trainbox.learner import Learner
from trainbox.loop import Writer
from trainbox.progress import Progress

PARTS = ("train/", "validation/", "test/")


def test(
    learner: Learner, info: DatasetInfo, expression: str | None, *, between: Callable[[], None], display: Display
) -> dict[str, float]:
    """Loss and metrics on the test rows that `expression` names as `test/…`; empty without. `between` may raise to
    stop.
    """
    if expression is None:
        return {}
    rows = setting_up.split(info, expression)
    with contextlib.closing(setting_up.feed(rows, learner.plan.over(len(rows)))) as feed:
        measured = evaluate.Evaluator(learner, feed)(between=between)
    scalars = {f"test/{name}": value for name, value in measured.items()}
    display.line("  ".join(f"{name} {number(value)}" for name, value in scalars.items()))
    return scalars


def finish(
    run_dir: Path,
    learner: Learner,
    progress: Progress,
    writer: Writer,
    *,
    tested: Mapping[str, float],
    verdict: Verdict | None,
    display: Display,
) -> None:
    """Write the test's line, `model.keras`, and the result in the manifest, after which the run is complete.

    What bounds the run is in the result for information; no comparison of runs looks at it.
    """
    # A run that was killed between this line and its result comes here again.
    if tested and "test/loss" not in (metrics.read(run_dir) or [{}])[-1]:
        writer.write(step=progress.step, epoch=progress.epochs_done, seconds=progress.seconds, scalars=tested)
    result = _result(run_dir, learner, progress) | dict(tested)
    if learner.average:
        learner.average.give_to(learner.model)
    if notice := export.save_for_keras(learner.model, run_dir / "model.keras", normalisation=learner.normalisation):
        display.line(notice)
    if verdict:
        result["speed"] = verdict.as_dict()
        for line in verdict.lines:
            display.line(line)
    manifest.finish(run_dir, result)
    display.line(f"done: {run_dir}")


def _result(run_dir: Path, learner: Learner, progress: Progress) -> dict[str, Any]:
    lines = metrics.read(run_dir)
    last_epoch: dict[str, Any] = next((line for line in reversed(lines) if "train/loss" in line), {})
    arrays = checkpoint.snapshot(learner.variables)
    return {
        "epochs_done": progress.epochs_done,
        "stopped_early": progress.stopped_early,
        "step": progress.step,
        "best_step": progress.best_step,
        **{name: value for name, value in last_epoch.items() if name.startswith(PARTS)},
        "weights": checkpoint.digest(arrays),
        "metrics": metrics.digest(run_dir),
    }
