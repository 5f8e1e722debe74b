"""What cgroups and Slurm leave of CPUs and memory, against what this process sees and what it was told to use."""

from __future__ import annotations

from collections.abc import Iterator

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, note, ok, warning
from trainbox.limits import Limits

# Importing TensorFlow takes 0.6 GB, and a data set and a model want some too.
LEAST_BYTES = 2 * 2**30


def examine(case: Case) -> list[Finding]:
    """Threads follow the tightest limit, so that it is only a note; too many threads or too little memory are more."""
    limits = case.limits
    found = [*_cpus(limits, case.threads), *_memory(limits)]
    memory = f", {_gib(limits.memory_bytes)} of memory" if limits.memory_bytes else ""
    return found or ok(f"{_number(limits)}{memory}")


def _number(limits: Limits) -> str:
    return f"{limits.threads} CPU{'s' * (limits.threads != 1)}"


def _cpus(limits: Limits, threads: int) -> Iterator[Finding]:
    if threads > limits.threads:
        yield warning(f"--threads {threads} on {_number(limits)}: they get in each other's way", "leave --threads out")
    if limits.slurm_cpus and limits.slurm_cpus > limits.schedulable:
        yield warning(
            f"Slurm gave {limits.slurm_cpus} CPUs a task and this process may run on {limits.schedulable}",
            f"srun --cpus-per-task={limits.slurm_cpus} … (since Slurm 22.05 srun does not take it from sbatch)",
        )
    elif limits.slurm_cpus and limits.slurm_cpus < limits.schedulable:
        yield note(f"Slurm gave {limits.slurm_cpus} of the {limits.schedulable} CPUs here: threads follow Slurm")
    if limits.quota is not None and limits.quota < limits.schedulable:
        yield note(
            f"the cgroup gives the time of {limits.quota:g} of the {limits.schedulable} CPUs here: threads follow it"
        )


def _memory(limits: Limits) -> Iterator[Finding]:
    cgroup, slurm = limits.memory_bytes, limits.slurm_memory_bytes
    least = min((size for size in (cgroup, slurm) if size), default=None)
    if least is not None and least < LEAST_BYTES:
        yield warning(
            f"{_gib(least)} of memory: loading TensorFlow alone takes 0.6 GiB, and what takes too much is killed (137)",
            "docker run --memory 8g …, or sbatch --mem=8G",
        )
    if slurm and cgroup and slurm < cgroup:
        yield note(
            f"Slurm gave {_gib(slurm)} of memory and the cgroup allows {_gib(cgroup)}: Slurm may end what takes more"
        )


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
