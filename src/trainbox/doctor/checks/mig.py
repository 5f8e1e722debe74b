"""MIG: a GPU in that mode computes only through an instance, and one process can have one."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok, warning


def examine(case: Case) -> list[Finding]:
    """A mode without instances, and several instances handed to one process."""
    gpus = case.inventory.gpus
    if not any(gpu.mig is not None for gpu in gpus):
        return ok("no GPU is in MIG mode")
    found = []
    bare = [gpu.index for gpu in gpus if gpu.mig == ()]
    if bare:
        say = warning if case.listing.usable else failure
        names = ", ".join(map(str, bare))
        found.append(
            say(
                f"GPU{'s' * (len(bare) > 1)} {names} in MIG mode without a MIG instance: nothing can be computed there",
                f"sudo nvidia-smi mig -i {bare[0]} -cgi 0 -C makes one of the whole GPU; "
                f"sudo nvidia-smi -i {bare[0]} -mig 0 ends the mode",
            )
        )
    given = [entry.strip() for entry in case.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    slices = [entry for entry in given if entry.startswith("MIG-")]
    present = [instance.uuid for gpu in gpus for instance in gpu.mig or ()]
    if len(present) > 1 and "CUDA_VISIBLE_DEVICES" not in case.environ:
        found.append(
            note(
                f"{len(present)} MIG instances: one process can use one, and uses {present[0]}",
                f"start a process for each: CUDA_VISIBLE_DEVICES={present[1]} trainbox train --run SECOND",
            )
        )
    if len(slices) > 1:
        found.append(
            warning(
                f"{len(slices)} MIG instances in CUDA_VISIBLE_DEVICES: one process can use one, and uses {slices[0]}",
                f"start a process for each: CUDA_VISIBLE_DEVICES={slices[1]} trainbox train --run SECOND",
            )
        )
    return found or ok("every GPU in MIG mode has an instance")
