"""A listing of GPUs as a table and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.devices.listing import Listing, Row

HEAD = ("index", "machine", "name", "UUID", "PCI address", "memory", "capability", "usable")
_GIB = 2**30


def table(listing: Listing) -> list[str]:
    """The listing in lines: how many GPUs there are, one line each, and what is to be said of them.

    `index` is CUDA's number in this process and what `--devices` takes; `machine` is that of a process that sees all.
    """
    lines = [_summary(listing)]
    if listing.rows:
        cells = [HEAD, *(line for row in listing.rows for line in _cells(row))]
        # The last column holds the reasons, which may be long.
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)][:-1]
        lines += [_line(line, widths) for line in cells]
    return [*lines, *(f"note: {note}" for note in listing.notes), *(f"warning: {line}" for line in listing.warnings)]


def as_data(listing: Listing) -> dict[str, Any]:
    """The listing as plain data, for JSON."""
    return {
        "gpus": [_row(row) for row in listing.rows],
        "usable": listing.usable,
        "driver": listing.driver,
        "absence": listing.absence,
        "notes": list(listing.notes),
        "warnings": list(listing.warnings),
    }


def _summary(listing: Listing) -> str:
    if listing.absence:
        return f"no GPU: {listing.absence}"
    count = len(listing.rows)
    gpus = f"{count} GPU{'s' * (count != 1)}"
    return f"{gpus}, driver {listing.driver or 'unknown'}; this process may use {listing.usable}"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join([*(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=False)), cells[-1]])


def _cells(row: Row) -> Iterator[tuple[str, ...]]:
    usable = _usable(row.usable, row.reason)
    if row.gpu is None:
        yield ("-", "-", "GPU", "", "", "", "", usable)
        return
    gpu = row.gpu
    index = "-" if row.index is None else str(row.index)
    memory, capability = _memory(gpu.memory_bytes), _capability(gpu)
    yield (index, str(gpu.index), gpu.name, gpu.uuid, gpu.pci_address, memory, capability, usable)
    for one in row.instances or ():
        memory = _memory(one.instance.memory_bytes)
        told = _usable(one.usable, one.reason)
        yield ("", "", f"  {one.instance.name}", one.instance.uuid, "", memory, "", told)


def _usable(usable: bool | None, reason: str) -> str:
    word = {True: "yes", False: "no", None: "unknown"}[usable]
    return f"{word}: {reason}" if reason else word


def _memory(size: int | None) -> str:
    return "-" if size is None else f"{size / _GIB:.1f} GiB"


def _capability(gpu: Gpu) -> str:
    return "-" if gpu.compute_capability is None else ".".join(map(str, gpu.compute_capability))


def _row(row: Row) -> dict[str, Any]:
    gpu = row.gpu
    return {
        "index": row.index,
        "machine_index": gpu.index if gpu else None,
        "name": gpu.name if gpu else None,
        "uuid": (gpu.uuid or None) if gpu else None,
        "pci_address": (gpu.pci_address or None) if gpu else None,
        "memory_bytes": gpu.memory_bytes if gpu else None,
        "compute_capability": _capability(gpu) if gpu and gpu.compute_capability else None,
        "driver": (gpu.driver or None) if gpu else None,
        "usable": row.usable,
        "reason": row.reason,
        "mig": None
        if row.instances is None
        else [_instance(one.instance) | {"usable": one.usable, "reason": one.reason} for one in row.instances],
    }


def _instance(instance: MigInstance) -> dict[str, Any]:
    return {
        "uuid": instance.uuid,
        "name": instance.name,
        "gpu_instance": instance.gpu_instance,
        "compute_instance": instance.compute_instance,
        "memory_bytes": instance.memory_bytes,
    }
