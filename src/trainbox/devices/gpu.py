"""What is known of one GPU before any CUDA library is loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """One slice of a GPU in MIG mode: what a CUDA process takes for its only device.

    `uuid` ("MIG-…") is the name that `CUDA_VISIBLE_DEVICES` takes; drivers before 470 knew the slice as
    "MIG-<UUID of the GPU>/<gpu_instance>/<compute_instance>".
    """

    uuid: str
    gpu_instance: int
    compute_instance: int
    name: str
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU of the machine.

    `index` counts from 0 in the order of PCI addresses: CUDA's number for it in a process that sees every GPU and has
    `CUDA_DEVICE_ORDER=PCI_BUS_ID`. `memory_bytes` is None where the GPU has none of its own. `mig` is None for a whole
    GPU; in MIG mode it holds the instances, and with none of them the GPU cannot compute. A GPU that the driver lists
    and cannot use says why in `fault`; its `uuid` may then be empty.
    """

    index: int
    uuid: str
    name: str
    pci_address: str = ""
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    driver: str = ""
    mig: tuple[MigInstance, ...] | None = None
    fault: str = ""
