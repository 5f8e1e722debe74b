"""The job of `trainbox devices`."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox.config import RunConfig
from trainbox.errors import DevicesError

if TYPE_CHECKING:
    from trainbox.devices import Listing


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What there is, in lines for a person and as data for JSON."""

    lines: list[str]
    values: dict[str, Any]


def list_devices(*, tensorflow: bool = False) -> Listed:
    """Every GPU of this machine for this process; with `tensorflow` beside the list that TensorFlow makes.

    Raises:
        UsageError: there is no temporary folder, without which TensorFlow cannot be loaded.
    """
    from trainbox import devices

    around = devices.look(os.environ)
    listing = devices.describe(devices.take_inventory(), environ=os.environ, around=around)
    lines, values = devices.table(listing), devices.as_data(listing)
    if tensorflow:
        compared = _compare(listing)
        lines += _told(compared)
        values["tensorflow"] = compared
    return Listed(lines=lines, values=values)


def _compare(listing: Listing) -> dict[str, Any]:
    """TensorFlow's own list, the libraries that it would open, and where its list parts from the machine's."""
    from trainbox import environment, gpu_libraries
    from trainbox.devices import Selection

    selection = Selection(kind="gpu" if listing.rows else "cpu", replicas=1, visible_devices=None, names=(), notice="")
    trouble = ""
    try:
        # No kernel is compiled for a list, so that no folder is made for them.
        environment.apply(RunConfig(data_dir=Path(os.devnull, "data")), selection, environ=os.environ)
    except DevicesError as error:
        trouble = str(error)

    from trainbox import runtime

    found = runtime.gpus()
    if not trouble and len(found) < listing.usable:
        trouble = runtime.why_fewer()
    built = gpu_libraries.built_for_gpus()
    return {
        "gpus": found,
        "built_for_gpus": built,
        "libraries": [dataclasses.asdict(one) for one in gpu_libraries.examine()] if built else [],
        "difference": _difference(listing.usable, len(found), trouble),
    }


def _difference(usable: int, found: int, trouble: str) -> str:
    if found == usable:
        return ""
    line = f"this process may use {usable} GPU{'s' * (usable != 1)} and TensorFlow lists {found}"
    return f"{line}: {trouble}" if trouble else line


def _told(compared: dict[str, Any]) -> list[str]:
    gpus = [f"{number} {gpu['name']} ({gpu['compute_capability']})" for number, gpu in enumerate(compared["gpus"])]
    lines = [f"TensorFlow lists {len(gpus)} GPU{'s' * (len(gpus) != 1)}{': ' if gpus else ''}{', '.join(gpus)}"]
    for one in compared["libraries"]:
        verdict = f"does not load: {one['error']}" if one["error"] else "loads"
        lines.append(f"  {one['name']}: {one['path'] or one['soname']} {verdict}")
    return [*lines, f"warning: {compared['difference']}"] if compared["difference"] else lines
