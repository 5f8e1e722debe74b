"""Faults, heat, other processes and the paths between GPUs, as NVML tells them: for words to the user."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trainbox.devices.nvml import _known

# Reasons for low clocks that are a fault of power or cooling; idleness and a power limit in full use are not.
_SLOWED = {
    0x08: "hardware slowdown",
    0x20: "too hot, slowed by the driver",
    0x40: "too hot, slowed by the hardware",
    0x80: "power brake of the power supply",
}
_READ = 0  # NVML_P2P_CAPS_INDEX_READ, which the binding has as a tuple
_P2P = {
    1: "the chipset does not support it",
    2: "the GPU does not support it",
    3: "the bridges between them do not support it",
    4: "the driver is told not to",
    5: "not supported",
}


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that computes on a GPU; its number is the host's. `memory_bytes` is None where the driver hides it."""

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Health:
    """What is known of the state of the GPU of that UUID; None is what it does not tell.

    `uncorrected` counts memory errors since the driver was loaded; `waiting` says that pages or rows wait for a reset
    to be replaced, `worn` that a row could not be. `slowed` names reasons for low clocks, `temperature` is in °C.
    """

    uuid: str
    uncorrected: int | None = None
    waiting: bool | None = None
    worn: bool | None = None
    slowed: tuple[str, ...] = ()
    temperature: int | None = None
    compute_mode: int | None = None
    processes: tuple[Process, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """Two GPUs, by UUID, that cannot read each other's memory, and why."""

    uuids: tuple[str, str]
    reason: str


def examine_health() -> tuple[tuple[Health, ...], tuple[Barrier, ...]]:
    """The state of each GPU that can be opened, and which pairs have no direct path; never raises for a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), ()
    try:
        handles = [_known(pynvml.nvmlDeviceGetHandleByIndex, n) for n in range(_known(pynvml.nvmlDeviceGetCount) or 0)]
        named = [(handle, _known(pynvml.nvmlDeviceGetUUID, handle) or "") for handle in handles if handle is not None]
        return (
            tuple(_health(handle, uuid) for handle, uuid in named),
            tuple(
                Barrier(uuids=(first[1], second[1]), reason=reason)
                for first, second in combinations(named, 2)
                if (reason := _barrier(first[0], second[0]))
            ),
        )
    finally:
        pynvml.nvmlShutdown()


def _health(handle: Any, uuid: str) -> Health:
    import pynvml

    remapped = _known(pynvml.nvmlDeviceGetRemappedRows, handle)
    pending = _known(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    told = [bool(one) for one in (pending, remapped[2] if remapped else None) if one is not None]
    bits = _known(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    return Health(
        uuid=uuid,
        uncorrected=_known(
            pynvml.nvmlDeviceGetTotalEccErrors,
            handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        ),
        waiting=any(told) if told else None,
        worn=bool(remapped[3]) if remapped else None,
        slowed=tuple(reason for bit, reason in _SLOWED.items() if bits & bit),
        temperature=_known(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        compute_mode=_known(pynvml.nvmlDeviceGetComputeMode, handle),
        processes=tuple(
            Process(pid=one.pid, memory_bytes=one.usedGpuMemory)
            for one in _known(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        ),
    )


def _barrier(first: Any, second: Any) -> str:
    import pynvml

    status = _known(pynvml.nvmlDeviceGetP2PStatus, first, second, _READ)
    return _P2P.get(status, f"NVML's status {status}") if status else ""
