"""What a cgroup and Slurm leave of the machine's CPUs and memory (no TensorFlow).

TensorFlow counts the CPUs that it may be scheduled on, which follows a cpuset and not a quota: in a container with
`--cpus 2` on a machine of 64 it would start 64 threads and be throttled for most of its time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("sys/fs/cgroup")
# Version 1 of cgroups writes "no limit" as the largest number of pages.
_UNLIMITED_BYTES = 2**60


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a process may use; None where nothing limits it.

    `schedulable` counts the CPUs that it may run on, `quota` is its share of time in CPUs, `memory_bytes` the least
    limit of its cgroups. What Slurm says of the task is in `slurm_cpus` and, for the whole node, `slurm_memory_bytes`.
    """

    schedulable: int
    quota: float | None = None
    memory_bytes: int | None = None
    slurm_cpus: int | None = None
    slurm_memory_bytes: int | None = None

    @property
    def threads(self) -> int:
        """How many threads can compute at once: as many as the tightest limit has CPUs, at least one."""
        counts = [self.schedulable, self.slurm_cpus, None if self.quota is None else math.ceil(self.quota)]
        return max(1, min(count for count in counts if count is not None))


def read(environ: Mapping[str, str], *, root: Path = Path("/"), schedulable: int | None = None) -> Limits:
    """The limits of this process, from the cgroups (version 1 and 2) under `root` and Slurm's variables. Never raises.

    `schedulable` is the number of CPUs that the kernel lets it run on, by default asked of it.
    """
    folders = list(_cgroups(root))
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    memories = [size for folder in folders if (size := _memory(folder)) is not None]
    return Limits(
        schedulable=len(os.sched_getaffinity(0)) if schedulable is None else schedulable,
        quota=min(quotas, default=None),
        memory_bytes=min(memories, default=None),
        slurm_cpus=_positive(environ.get("SLURM_CPUS_PER_TASK")),
        slurm_memory_bytes=_slurm_memory(environ),
    )


def _cgroups(root: Path) -> Iterator[Path]:
    """The folders of the cgroups that this process is in, each with all above it, whose limits hold too."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [root / _CGROUPS, root / _CGROUPS / "unified"]
        elif {"cpu", "memory"} & set(controllers.split(",")):
            mounts = [root / _CGROUPS / name for name in dict.fromkeys([controllers, *controllers.split(",")])]
        else:
            continue
        # In a container the path may be the host's, of which nothing but the top is mounted.
        inside = Path(path.lstrip("/"))
        for mount in mounts:
            for folder in (inside, *inside.parents):
                if ".." not in folder.parts and (mount / folder).is_dir():
                    yield mount / folder


def _quota(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split()
    if not words:
        words = [*_text(folder / "cpu.cfs_quota_us").split(), *_text(folder / "cpu.cfs_period_us").split()]
    numbers = [_positive(word) for word in words]
    if len(numbers) == 2 and numbers[0] and numbers[1]:
        return numbers[0] / numbers[1]
    return None


def _memory(folder: Path) -> int | None:
    sizes = [_positive(_text(folder / name)) for name in ("memory.max", "memory.limit_in_bytes")]
    return min((size for size in sizes if size and size < _UNLIMITED_BYTES), default=None)


def _slurm_memory(environ: Mapping[str, str]) -> int | None:
    """Slurm counts in MiB, for a node or for each CPU of it."""
    node = _positive(environ.get("SLURM_MEM_PER_NODE"))
    if node:
        return node * 2**20
    cpu, cpus = (_positive(environ.get(name)) for name in ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"))
    return cpu * cpus * 2**20 if cpu and cpus else None


def _positive(text: str | None) -> int | None:
    """A number above 0 as it is written; None for anything else."""
    text = (text or "").strip()
    return int(text) or None if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
