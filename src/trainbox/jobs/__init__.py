"""The corridor: the only place that joins the rooms. One file a job, loaded when it is called for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainbox.jobs.comparing import compare
    from trainbox.jobs.data_sets import clean_data, describe_data, list_data, prepare_data, verify_data
    from trainbox.jobs.evaluation import evaluate
    from trainbox.jobs.examining import examine
    from trainbox.jobs.exporting import export
    from trainbox.jobs.listing import list_devices
    from trainbox.jobs.reproducing import reproduce
    from trainbox.jobs.training import train

__all__ = [
    "clean_data", "compare", "describe_data", "evaluate", "examine", "export", "list_data", "list_devices",
    "prepare_data", "reproduce", "train", "verify_data",
]  # fmt: skip

_FILES = {
    "clean_data": "data_sets",
    "compare": "comparing",
    "describe_data": "data_sets",
    "evaluate": "evaluation",
    "examine": "examining",
    "export": "exporting",
    "list_data": "data_sets",
    "list_devices": "listing",
    "prepare_data": "data_sets",
    "reproduce": "reproducing",
    "train": "training",
    "verify_data": "data_sets",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"trainbox.jobs has no {name}")
    return getattr(importlib.import_module(f"trainbox.jobs.{_FILES[name]}"), name)
