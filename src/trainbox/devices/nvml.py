"""Discovery of GPUs through NVML, the driver's own inventory: needs no CUDA library and touches no GPU's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.errors import DevicesError


def discover() -> list[Gpu]:
    """Every GPU of this machine, by PCI address; none where no NVIDIA driver is installed or loaded.

    A GPU that this process has no permission to open (a job scheduler's cgroup) is left out, as CUDA leaves it out.

    Raises:
        DevicesError: there is a driver and it does not answer, so that nobody knows what the machine has.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as error:
        raise _unanswered("NVML does not start", error) from error
    try:
        driver = _known(pynvml.nvmlSystemGetDriverVersion) or ""
        found = [_describe(position, driver) for position in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise _unanswered("NVML does not list the GPUs", error) from error
    finally:
        pynvml.nvmlShutdown()
    # NVML promises no order; CUDA's is that of the PCI addresses, and a GPU that is not listed has no number.
    ordered = sorted(filter(None, found), key=lambda item: item[0])
    return [Gpu(index=index, **fields) for index, (_, fields) in enumerate(ordered)]


def _unanswered(what: str, error: Exception) -> DevicesError:
    return DevicesError(
        f"the NVIDIA driver of this machine does not answer ({what}: {error}); nvidia-smi should say the same: "
        "reload the driver or reboot, or train with --device cpu"
    )


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
