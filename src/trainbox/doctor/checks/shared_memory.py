"""Whether /dev/shm is large enough for NCCL, by which several GPUs add their gradients."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, ok, warning

LEAST_BYTES = 2**30


def examine(case: Case) -> list[Finding]:
    """Docker's default of 64 MiB makes NCCL fail or hang, often from the third or fourth GPU on."""
    if len(case.usable) < 2:
        return ok("fewer than two GPUs: NCCL is not needed")
    size = case.shared_memory_bytes
    if size is not None and size >= LEAST_BYTES:
        return ok(f"/dev/shm has {size / 2**30:.1f} GiB")
    what = "cannot be looked at" if size is None else f"has {size / 2**20:.0f} MiB"
    remedy = "docker run --shm-size=1g … or --ipc=host; compose: shm_size: 1g"
    if case.around.container == "kubernetes":
        remedy = "mount an emptyDir with medium: Memory at /dev/shm"
    elif case.around.container in (None, "apptainer"):
        remedy = "sudo mount -o remount,size=1G /dev/shm"
    return [warning(f"/dev/shm {what}: with {len(case.usable)} GPUs NCCL may fail or hang for want of it", remedy)]
