"""Says where a run hangs before its first step is done; never ends it (no TensorFlow).

A compilation, or an all-reduce over GPUs that cannot reach one another, can take minutes or for ever, and both look
alike from outside.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

# Each line comes this many times later than the one before it, so that a run that only takes long says little.
RARELY = 5.0
_SMALL = 2**30  # of /dev/shm, for NCCL


class FirstStepWatch:
    """Tells once that a phase has taken `seconds` without an end, and then ever more rarely; 0 tells nothing.

    `advice` is told with the first line. `phase` names what begins; after `done` nothing is said any more.
    """

    def __init__(self, *, seconds: float, tell: Callable[[str], None], advice: str) -> None:
        self._seconds, self._tell, self._advice = seconds, tell, advice
        self._changed = threading.Condition()
        self._phase = ""
        self._number = 0
        self._over = not seconds

    def phase(self, words: str) -> None:
        """What is being done from now on, such as `compiling the step`."""
        with self._changed:
            self._phase, self._number = words, self._number + 1
            self._changed.notify()
        if self._number == 1 and not self._over:
            threading.Thread(target=self._watch, name="first-step", daemon=True).start()

    def done(self) -> None:
        """The first step is done, or nobody waits for it any more."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _watch(self) -> None:
        number, after, passed = 0, self._seconds, 0.0

        def changed() -> bool:
            return self._over or self._number != number

        while True:
            with self._changed:
                same = not self._changed.wait_for(changed, after - passed)
                if self._over:
                    return
                number, words = self._number, self._phase
            if same:
                passed = after
                self._tell(f"no first step yet: {words} for {passed:g} s{self._said_once()}")
                after = passed * RARELY
            else:
                after, passed = self._seconds, 0.0

    def _said_once(self) -> str:
        advice, self._advice = self._advice, ""
        return f"; {advice}" if advice else ""


def advice(*, kind: str, replicas: int, all_reduce: str, environ: Mapping[str, str], shm: int | None) -> str:
    """What a user can look at, in one line. `shm` is the size of /dev/shm in bytes, if it is known."""
    if kind == "cpu":
        return "nothing is wrong if the CPU is busy: a large model compiles long"
    compiling = "on a GPU newer than TensorFlow's kernels the first start compiles for minutes, and keeps what it made"
    if replicas == 1:
        return compiling
    settings = " ".join(f"{name}={value}" for name, value in sorted(environ.items()) if name.startswith("NCCL_"))
    room = f" (here {shm / 2**20:,.0f} MiB)" if shm is not None and shm < _SMALL else ""
    return (
        f"{compiling}; GPUs that are idle, or at 100 % with little power, cannot reach one another: all-reduce is "
        f"{all_reduce}, NCCL's settings: {settings or 'none'}; try NCCL_P2P_DISABLE=1 (an IOMMU or PCI ACS keeps GPUs "
        f"from one another), in a container --shm-size 1g{room}, or --all-reduce hierarchical"
    )


def shm_bytes(path: Path = Path("/dev/shm")) -> int | None:
    """The size of the memory that processes share, in bytes; None where there is none."""
    try:
        told = os.statvfs(path)
    except OSError:
        return None
    return told.f_blocks * told.f_frsize
