"""The largest batch that fits, by trying; and what memory a trial may take (no TensorFlow)."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable
from pathlib import Path

# Trials grow by this factor until one fails.
GROWTH = 4
# The search ends when the batch that fails is at most this much larger than the one that fits.
CLOSE = 1.15
# Of a batch that fits, what is taken: training has more in memory than a trial, and memory has other users.
MARGIN = 0.85
# Address space that a run needs beyond a trial's, for the threads of evaluation and of checkpoints: stacks, and glibc's
# arenas of 64 MiB each. Where it is limited (`ulimit -v`, which some schedulers set), their start ends the process.
THREADS_BYTES = 2**30


def largest(fits: Callable[[int], bool], *, start: int, limit: int) -> int | None:
    """The largest batch from 1 to `limit` that `fits`, to within `CLOSE`; None if not even 1 does.

    `start` is tried first; `limit` is only given back if it was tried.
    """
    fitting, failing, size = 0, limit + 1, min(start, limit)
    while True:
        if fits(size):
            fitting = size
        else:
            failing = size
        if fitting == limit or failing == 1:
            return fitting or None
        if failing > limit:
            size = min(size * GROWTH, limit)
        elif not fitting:
            size = max(size // GROWTH, 1)
        elif failing <= max(fitting * CLOSE, fitting + 1):
            return fitting
        else:
            size = min(max(round(math.sqrt(fitting * failing)), fitting + 1), failing - 1)


def with_margin(fitting: int, *, unit: int, limit: int) -> int:
    """What to train with where `fitting` fits: less, in whole `unit`s if it has any, or all rows (`limit`)."""
    if fitting >= limit:
        return limit
    safe = max(int(fitting * MARGIN), 1)
    return safe // unit * unit or safe


def available_bytes(*limits: int | None, root: Path = Path("/")) -> int | None:
    """The memory that a new process may take: what the machine has left and at most each of `limits`, less what this
    process has itself; None where nobody knows.
    """
    left = _field(root / "proc/meminfo", "MemAvailable")
    own = resident_bytes(root=root) or 0
    known = [left, *(max(limit - own, 0) for limit in limits if limit is not None)]
    return min((size for size in known if size is not None), default=None)


def resident_bytes(*, peak: bool = False, root: Path = Path("/")) -> int | None:
    """The memory that this process has now, or had at most; None where it is not told."""
    return _field(root / "proc/self/status", "VmHWM" if peak else "VmRSS")


def leaves_address_space(*, limit: int | None = None, root: Path = Path("/")) -> bool:
    """Whether this process had at most so much address space that `limit` bytes, by default those that the process may
    have, leave the rest of a run its own.
    """
    most = resource.getrlimit(resource.RLIMIT_AS)[0] if limit is None else limit
    return most == resource.RLIM_INFINITY or (_field(root / "proc/self/status", "VmPeak") or 0) + THREADS_BYTES <= most


def _field(path: Path, name: str) -> int | None:
    """A line such as `MemAvailable:  123 kB` of a file of the kernel's, in bytes."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    words = next((line.split() for line in lines if line.startswith(f"{name}:")), [])
    return int(words[1]) * 1024 if len(words) > 1 and words[1].isdecimal() else None
