"""Discovery of GPUs through NVML, the driver's own inventory: needs no CUDA library and touches no GPU's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.errors import DevicesError

LIBRARY = "libnvidia-ml.so.1"

# Why NVML lists no GPU.
Absence = Literal["no library", "library does not load", "driver not loaded", "driver does not answer", "no GPU"]


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What the driver tells of the machine.

    `gpus` are by PCI address. `closed` counts those that this process has no permission to open (a job scheduler's
    cgroup), of which nothing else is known; CUDA leaves them out and does not count them. Where nothing is listed,
    `absence` says of what kind the reason is, and `detail` is the error behind it, if there is one.
    """

    gpus: tuple[Gpu, ...] = ()
    closed: int = 0
    driver: str = ""
    absence: Absence | None = None
    detail: str = ""


def discover() -> list[Gpu]:
    """Every GPU of this machine, by PCI address; none where no NVIDIA driver is installed or loaded.

    A GPU that this process has no permission to open is left out, as CUDA leaves it out.

    Raises:
        DevicesError: there is a driver and it does not answer, so that nobody knows what the machine has.
    """
    inventory = take_inventory()
    if inventory.absence == "driver does not answer":
        raise DevicesError(
            f"the NVIDIA driver of this machine does not answer ({inventory.detail}); nvidia-smi should say the same: "
            "reload the driver or reboot, or train with --device cpu"
        )
    return list(inventory.gpus)


def take_inventory() -> Inventory:
    """What NVML tells of this machine, or why it tells nothing; never raises for what a driver does."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        problem = _linker_problem()
        return Inventory(absence="library does not load" if problem else "no library", detail=problem)
    except pynvml.NVMLError_DriverNotLoaded as error:
        return Inventory(absence="driver not loaded", detail=str(error))
    except pynvml.NVMLError as error:
        return Inventory(absence="driver does not answer", detail=f"NVML does not start: {error}")
    try:
        driver = _known(pynvml.nvmlSystemGetDriverVersion) or ""
        found = [_describe(position, driver) for position in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return Inventory(absence="driver does not answer", detail=f"NVML does not list the GPUs: {error}")
    finally:
        pynvml.nvmlShutdown()
    # NVML promises no order; CUDA's is that of the PCI addresses, and a GPU that is not listed has no number.
    ordered = sorted(filter(None, found), key=lambda item: item[0])
    gpus = tuple(Gpu(index=index, **fields) for index, (_, fields) in enumerate(ordered))
    return Inventory(gpus=gpus, closed=found.count(None), driver=driver, absence=None if found else "no GPU")


def _linker_problem() -> str:
    """What the linker says of a library that is there and does not load; the binding takes it for a missing one."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError as error:
        return "" if "cannot open shared object file" in str(error) else str(error)
    return ""


def _describe(position: int, driver: str) -> tuple[tuple[int, ...], dict[str, Any]] | None:
    """The order of NVML's GPU number `position` and its fields; None for one that this process may not open."""
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(position)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        return (1 << 32, position), {"uuid": "", "name": "GPU", "driver": driver, "fault": str(error)}
    pci = _known(pynvml.nvmlDeviceGetPciInfo, handle)
    memory = _known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    uuid = _known(pynvml.nvmlDeviceGetUUID, handle) or ""
    key = (pci.domain, pci.bus, pci.device) if pci else (1 << 32, position)
    return key, {
        "uuid": uuid,
        "name": _known(pynvml.nvmlDeviceGetName, handle) or "GPU",
        "pci_address": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0" if pci else "",
        "memory_bytes": memory.total if memory else None,
        "compute_capability": _known(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
        "driver": driver,
        "mig": _mig_instances(handle),
        "fault": "" if uuid else "it does not tell its UUID",
    }


def _mig_instances(handle: Any) -> tuple[MigInstance, ...] | None:
    import pynvml

    mode = _known(pynvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return None
    instances = []
    for position in range(_known(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _known(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, position)
        if instance is None:
            continue  # a place with no instance in it
        memory = _known(pynvml.nvmlDeviceGetMemoryInfo, instance)
        instances.append(
            MigInstance(
                uuid=pynvml.nvmlDeviceGetUUID(instance),
                gpu_instance=pynvml.nvmlDeviceGetGpuInstanceId(instance),
                compute_instance=pynvml.nvmlDeviceGetComputeInstanceId(instance),
                name=_known(pynvml.nvmlDeviceGetName, instance) or "MIG instance",
                memory_bytes=memory.total if memory else None,
            )
        )
    return tuple(instances)


def _known(ask: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where the GPU or the driver has none to give."""
    import pynvml

    try:
        return ask(*arguments)
    except pynvml.NVMLError:
        return None
