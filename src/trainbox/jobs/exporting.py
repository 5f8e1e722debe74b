"""The job of `trainbox export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainbox.display import Display
from trainbox.jobs.trained import Trained, open_trained
from trainbox.run_folder import RunFolder, atomic_write
from trainbox.settings import Settings


def export(run_dir: Path, *, settings: Settings, checkpoint: str, display: Display) -> dict[str, Any]:
    """Write a run's last or best checkpoint as `export/saved_model/` and `export/model.keras` in its folder, and beside
    them `about.json`: what the model takes and gives, with the names of the classes.

    Raises:
        TrainboxError: the run, its checkpoint or the devices cannot be used, or the folder cannot be written.
    """
    folder = RunFolder.create(run_dir.parent, run_dir.name)
    with folder.lock():
        trained = open_trained(run_dir, settings=settings, checkpoint=checkpoint, display=display)

        from trainbox import export
        from trainbox.data.features import IMAGE

        info = trained.info
        names = (
            export.IMAGES if info.features.kind == IMAGE else export.ROWS,
            export.PROBABILITIES if info.num_classes else export.PREDICTIONS,
        )
        done = export.export(
            trained.learner.model,
            directory=run_dir / "export",
            input_shape=info.input_shape,
            gives_logits=trained.learner.gives_logits,
            names=names,
            normalisation=trained.learner.normalisation,
        )
        atomic_write(run_dir / "export" / "about.json", _about(trained, names))
    if done.notice:
        display.line(done.notice)
    display.line(f"exported step {trained.step} to {done.saved_model.parent}")
    return {
        "run": run_dir.name,
        "step": trained.step,
        "saved_model": str(done.saved_model),
        "keras": str(done.keras) if done.keras else None,
    }


def _about(trained: Trained, names: tuple[str, str]) -> bytes:
    from trainbox.data import prepared
    from trainbox.data.features import class_names

    info, (taken, given) = trained.info, names
    features = info.features
    takes: dict[str, Any] = {"name": taken, "type": "float32", "shape": [None, *info.input_shape]}
    takes["features"] = list(features.inputs)
    gives: dict[str, Any] = {"name": given}
    if features.kind == "image":
        takes["pixels"] = "0 to 1: a byte divided by 255"
        # Unlike the original files of EMNIST, whose images lie on their side.
        takes["orientation"] = (
            "upright, transposed from the original files" if features.transposed else "as in the files"
        )
    if info.num_classes:
        every = class_names(prepared.builder(info.path).info, features.label)
        gives["classes"] = [every[label] for label in info.used] if info.used is not None else every
    else:
        gives["number"] = features.label
    about = {"data": info.full_name, "step": trained.step, "takes": takes, "gives": gives}
    return (json.dumps(about, indent=2) + "\n").encode()
