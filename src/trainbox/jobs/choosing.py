"""The devices of a run, and whether TensorFlow will be able to use them; nothing here loads it."""

from __future__ import annotations

import os

from trainbox import devices, gpu_libraries
from trainbox.config import RunConfig
from trainbox.devices import Selection, Surroundings
from trainbox.display import Display
from trainbox.errors import DevicesError


def choose(config: RunConfig, display: Display) -> Selection:
    """The devices that the words and the environment choose; where they choose none, the table is shown first.

    Raises:
        DevicesError, UsageError: see `devices.choose`.
    """
    around = devices.look(os.environ)
    try:
        selection = devices.choose(config, environ=os.environ)
    except DevicesError:
        for line in devices.table(devices.describe(devices.take_inventory(), environ=os.environ, around=around)):
            display.line(line)
        raise
    display.line(f"devices: {selection.notice}")
    if selection.kind == "cpu" and config.device != "cpu" and (why := _why_the_cpu(around)):
        display.line(f"note: {why}")
    if selection.kind == "gpu":
        for warning in devices.warnings(os.environ, around, usable=selection.replicas):
            display.line(f"warning: {warning}")
    return selection


def _why_the_cpu(around: Surroundings) -> str:
    """Why no GPU is here, where a user may have expected one; empty on a plain machine without a driver."""
    inventory = devices.take_inventory()
    if inventory.closed:
        return f"this machine has {_gpus(inventory.closed)} that this process has no permission to open"
    if inventory.absence == "no library" and not around.container:
        return ""
    return devices.describe(inventory, environ=os.environ, around=around).absence


def _gpus(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"


def check_libraries(config: RunConfig, selection: Selection) -> None:
    """Whether TensorFlow would find what it needs for the GPUs, before it is loaded and data are prepared.

    Raises:
        DevicesError: it would not; each library is named, with its path and the reason.
    """
    if selection.kind == "cpu":
        return
    by_hand = config.strategy in ("towers", "batch-split")
    ring = config.all_reduce in ("auto", "nccl") and not config.reproducible and not by_hand
    nccl = selection.replicas > 1 and ring
    if problem := gpu_libraries.problem(several=nccl):
        gpus = "the selected GPU" if selection.replicas == 1 else f"any of the {selection.replicas} selected GPUs"
        raise DevicesError(f"TensorFlow cannot use {gpus}: {problem}; --device cpu trains on the CPU")
