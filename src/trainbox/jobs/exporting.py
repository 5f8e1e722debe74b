"""The job of `trainbox export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainbox.display import Display
from trainbox.jobs.trained import open_trained
from trainbox.run_folder import RunFolder
from trainbox.settings import Settings


def export(run_dir: Path, *, settings: Settings, checkpoint: str, display: Display) -> dict[str, Any]:
    """Write a run's last or best checkpoint as `export/saved_model/` and `export/model.keras` in its folder.

    Raises:
        TrainboxError: the run, its checkpoint or the devices cannot be used, or the folder cannot be written.
    """
    folder = RunFolder.create(run_dir.parent, run_dir.name)
    with folder.lock():
        trained = open_trained(run_dir, settings=settings, checkpoint=checkpoint, display=display)

        from trainbox import export

        done = export.export(
            trained.learner.model,
            directory=run_dir / "export",
            input_shape=trained.info.input_shape,
            gives_logits=trained.learner.gives_logits,
            normalisation=trained.learner.normalisation,
        )
    if done.notice:
        display.line(done.notice)
    display.line(f"exported step {trained.step} to {done.saved_model.parent}")
    return {
        "run": run_dir.name,
        "step": trained.step,
        "saved_model": str(done.saved_model),
        "keras": str(done.keras) if done.keras else None,
    }
