"""Every GPU of the machine, whether this process may use it, and if not why: what `trainbox devices` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainbox.devices import surroundings
from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.devices.nvml import Inventory
from trainbox.devices.surroundings import Surroundings
from trainbox.devices.visibility import Visibility, named, read_visible_devices
from trainbox.values import shown

NO_INSTANCE = "in MIG mode without a MIG instance, so that it computes nothing"
ONE_INSTANCE = "one process can use one MIG instance and no other device beside it"
CLOSED = "this process has no permission to open it (a job scheduler's cgroup, or the container's)"


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A MIG instance and whether this process may use it; if not, why."""

    instance: MigInstance
    usable: bool
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One GPU. `index` is CUDA's number for it in this process, None where there is none or only CUDA knows it.

    `usable` is None where only CUDA knows whether this process may use the GPU; `reason` says why it may not, or why
    that is not known. `gpu` is None for a GPU that may not be opened.
    """

    gpu: Gpu | None
    index: int | None = None
    usable: bool | None = False
    reason: str = ""
    instances: tuple[Instance, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The GPUs of the machine, and what is to be said of them; `absence` says why there is none.

    `usable` is how many of them this process may use, which is known also where only CUDA knows which.
    """

    rows: tuple[Row, ...]
    usable: int
    driver: str = ""
    absence: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def describe(inventory: Inventory, *, environ: Mapping[str, str], around: Surroundings) -> Listing:
    """The listing of a machine for a process with this environment. Never raises, whatever the environment."""
    value = environ.get("CUDA_VISIBLE_DEVICES")
    order = environ.get("CUDA_DEVICE_ORDER") or "PCI_BUS_ID"
    visibility = read_visible_devices(value, inventory.gpus, order=order)
    rows = [_row(gpu, visibility, value, inventory.gpus, order) for gpu in inventory.gpus]
    rows += [Row(gpu=None, reason=CLOSED)] * inventory.closed
    usable = sum(not device.gpu.fault for device in visibility.devices)
    return Listing(
        rows=tuple(rows),
        usable=usable,
        driver=inventory.driver,
        absence=surroundings.absence(inventory, environ, around),
        notes=(
            *_about_the_list(value, visibility, inventory.gpus, order),
            *surroundings.notes(environ, around, gpus=len(rows)),
        ),
        warnings=tuple(surroundings.warnings(environ, around, usable=usable)),
    )


def _about_the_list(value: str | None, visibility: Visibility, gpus: Sequence[Gpu], order: str) -> list[str]:
    """What is odd about the variables themselves; why a GPU is hidden is in its row."""
    said = []
    if value is not None and gpus:
        said += [f"{_variable(value)}: {odd}" for odd in (visibility.cause, visibility.remark) if odd]
    if order != "PCI_BUS_ID" and gpus:
        said.append(
            f"CUDA_DEVICE_ORDER={shown(order)}: only CUDA knows which GPU has which number; unset it, or name UUIDs"
        )
    return said


def _row(gpu: Gpu, visibility: Visibility, value: str | None, gpus: Sequence[Gpu], order: str) -> Row:
    """A GPU and what this process may do with it."""
    places = {device.gpu.index: (number, device) for number, device in enumerate(visibility.devices)}
    number, device = places.get(gpu.index, (None, None))
    taken = device.instance if device else None
    usable, reason = _verdict(gpu, device is not None, visibility, value, gpus)
    # In any other order a number may stand for any of the GPUs.
    by_number = order != "PCI_BUS_ID" and all(d.identifier.isdecimal() for d in visibility.devices)
    if by_number and not gpu.fault and visibility.devices:
        number = None
        if len(visibility.devices) < len(gpus):
            usable, reason = None, f"CUDA_DEVICE_ORDER={shown(order)}: only CUDA knows which GPU a number means"
    return Row(
        gpu=gpu,
        index=number if usable else None,
        usable=usable,
        reason=reason,
        instances=None if gpu.mig is None else tuple(_instance(one, taken, reason) for one in gpu.mig),
    )


def _verdict(
    gpu: Gpu, visible: bool, visibility: Visibility, value: str | None, gpus: Sequence[Gpu]
) -> tuple[bool | None, str]:
    """Whether a GPU may be used, and if not, why."""
    if gpu.fault:
        return False, f"{gpu.fault}: reset it or reboot"
    if gpu.mig == ():
        return False, NO_INSTANCE
    if visible:
        return True, ""
    if value is None:
        return False, ONE_INSTANCE
    entry = named(value, gpus).get(gpu.index)
    if entry is not None and visibility.devices and visibility.cause.startswith("its entry"):
        return False, f"{_variable(value)}: {visibility.cause}, and ends the list before {shown(entry)}"
    if visibility.cause and (entry is not None or not visibility.devices):
        return False, f"{_variable(value)}: {visibility.cause}"
    return False, f"not named in {_variable(value)}"


def _instance(instance: MigInstance, taken: MigInstance | None, reason: str) -> Instance:
    if taken is None:
        return Instance(instance=instance, usable=False, reason=reason)
    usable = instance == taken
    return Instance(instance=instance, usable=usable, reason="" if usable else ONE_INSTANCE)


def _variable(value: str) -> str:
    return f"CUDA_VISIBLE_DEVICES={shown(value)}"
