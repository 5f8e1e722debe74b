"""The corridor: the only place that joins the rooms. One file a job, loaded when it is called for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainbox.jobs.comparing import compare
    from trainbox.jobs.evaluation import evaluate
    from trainbox.jobs.examining import examine
    from trainbox.jobs.exporting import export
    from trainbox.jobs.listing import list_devices
    from trainbox.jobs.reproducing import reproduce
    from trainbox.jobs.training import train

__all__ = ["compare", "evaluate", "examine", "export", "list_devices", "reproduce", "train"]

_FILES = {
    "compare": "comparing",
    "evaluate": "evaluation",
    "examine": "examining",
    "export": "exporting",
    "list_devices": "listing",
    "reproduce": "reproducing",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"trainbox.jobs has no {name}")
    return getattr(importlib.import_module(f"trainbox.jobs.{_FILES[name]}"), name)
