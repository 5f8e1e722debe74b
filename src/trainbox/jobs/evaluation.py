"""The job of `trainbox evaluate`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from trainbox.display import Display
from trainbox.jobs.trained import open_trained
from trainbox.settings import Settings


def evaluate(run_dir: Path, *, settings: Settings, split: str, checkpoint: str, display: Display) -> dict[str, Any]:
    """Loss and metrics of a run's last or best checkpoint on a split of its data set.

    Raises:
        TrainboxError: the run, its checkpoint, its data or the devices cannot be used.
    """
    from trainbox import stopping

    trained = open_trained(run_dir, settings=settings, checkpoint=checkpoint, display=display)
    stop = stopping.StopRequest()
    stop.install()

    from trainbox import evaluate
    from trainbox.jobs import setting_up

    rows = setting_up.split(trained.info, split)
    with contextlib.closing(setting_up.feed(rows, trained.learner.plan.over(len(rows)))) as feed:
        measured = evaluate.Evaluator(trained.learner, feed)(between=stop.check)
    display.line("  ".join(f"{split}/{name} {value:.6f}" for name, value in measured.items()))
    return {"run": run_dir.name, "split": split, "rows": len(rows), "step": trained.step, **measured}
