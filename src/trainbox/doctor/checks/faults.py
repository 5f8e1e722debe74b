"""Faults of the GPUs themselves: those that do not open, memory errors, heat and power."""

from __future__ import annotations

from collections.abc import Iterator

from trainbox.devices.health import Health
from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok, warning

_RESET = "sudo nvidia-smi --gpu-reset -i {}; or reboot. dmesg | grep -i xid tells what happened"


def examine(case: Case) -> list[Finding]:
    """What the driver says of each GPU; of those that this process does not use a fault is only a note."""
    used = {gpu.uuid for gpu in case.usable}
    numbers = {gpu.uuid: gpu.index for gpu in case.inventory.gpus}
    found = [_unusable(case, gpu.index, gpu.fault) for gpu in case.inventory.gpus if gpu.fault]
    for health in case.health:
        if health.uuid in used:
            found += _of(health, numbers[health.uuid])
    return found or ok("no fault is known of any GPU" if case.inventory.gpus else "no GPU is listed")


def _unusable(case: Case, number: int, fault: str) -> Finding:
    message, remedy = f"GPU {number} cannot be used: {fault}", _RESET.format(number)
    chosen = case.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None and case.listing.usable:
        return note(message, remedy)
    return failure(message, f"{remedy}; or leave it out: --devices")


def _of(health: Health, number: int) -> Iterator[Finding]:
    if health.worn:
        yield failure(f"GPU {number}: a row of its memory is broken and could not be replaced", "have the GPU replaced")
    if health.uncorrected:
        yield failure(
            f"GPU {number}: {health.uncorrected} memory errors that ECC could not correct: results may be wrong",
            _RESET.format(number),
        )
    if health.waiting:
        yield warning(f"GPU {number}: parts of its memory wait for a reset to be replaced", _RESET.format(number))
    if health.slowed:
        heat = f", {health.temperature} °C" if health.temperature is not None else ""
        yield warning(
            f"GPU {number} runs slower than it could{heat}: {', '.join(health.slowed)}",
            f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {number}; look after cooling and power supply",
        )
