"""Who else computes on the GPUs, and whether a second process is let in at all."""

from __future__ import annotations

from collections.abc import Iterator

from trainbox.devices.health import Health
from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, ok, warning

PROHIBITED, EXCLUSIVE = 2, 3


def examine(case: Case) -> list[Finding]:
    """Of the GPUs that this process may use."""
    numbers = {gpu.uuid: gpu.index for gpu in case.usable}
    found = [
        finding
        for health in case.health
        if health.uuid in numbers
        for finding in _of(health, numbers[health.uuid])
    ]  # fmt: skip
    return found or ok("nobody else computes on the GPUs" if numbers else "no GPU that this process may use")


def _of(health: Health, number: int) -> Iterator[Finding]:
    if health.compute_mode == PROHIBITED:
        yield failure(f"GPU {number} is closed to all programs", f"sudo nvidia-smi -i {number} -c DEFAULT")
    if not health.processes:
        return
    told = ", ".join(f"{one.pid} with {_memory(one.memory_bytes)}" for one in health.processes[:4])
    more = f" and {len(health.processes) - 4} more" if len(health.processes) > 4 else ""
    message = f"GPU {number} is in use by process {told}{more}"
    if health.compute_mode == EXCLUSIVE:
        yield failure(
            f"{message}, and lets no second one in (compute mode exclusive)",
            f"take another GPU (--devices), or sudo nvidia-smi -i {number} -c DEFAULT",
        )
    else:
        yield warning(
            f"{message}: memory and speed are shared", "ps -fp PID on the host; take another GPU with --devices"
        )


def _memory(size: int | None) -> str:
    return "unknown memory" if size is None else f"{size / 2**30:.1f} GiB"
