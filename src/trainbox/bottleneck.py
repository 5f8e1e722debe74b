"""What bounds the speed of a run, and whether its GPUs do the same: a pure function of what was measured.

It is advice from thresholds, not a profile; the figures behind it are told with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from trainbox.plan import Plan

# Less training than this, in seconds or steps, tells nothing.
ENOUGH_SECONDS, ENOUGH_STEPS = 2.0, 20
# Of the time, between blocks: beyond it devices wait for the host.
HOST_SHARE = 0.2
# A shard that takes less is mostly the fixed cost of launching it.
TINY_SHARD_SECONDS = 0.003
# A GPU that is busy less than this, in percent, waits for something.
BUSY = 70.0
# GPUs that differ by more are not balanced: points of utilization, and share of the SM clock.
UNLIKE_POINTS, UNLIKE_CLOCK = 15.0, 0.1

Bound = Literal["input", "compute", "size", "unknown"]
Gpus = Sequence[Mapping[str, float | None]]


@dataclass
class Timings:
    """Where the time of the loop went since its first block, which compiles and is left out.

    `host_seconds` are those between two blocks of one epoch, checkpoints left out.
    """

    steps: int = 0
    examples: int = 0
    block_seconds: float = 0.0
    host_seconds: float = 0.0
    _first: bool = True
    _ended: float | None = None

    def block(self, *, began: float, ended: float, steps: int, examples: int) -> None:
        """A block of `steps` with `examples` real rows; the times are of one clock."""
        if not self._first:
            self.steps += steps
            self.examples += examples
            self.block_seconds += ended - began
            self.host_seconds += 0.0 if self._ended is None else began - self._ended
        self._first, self._ended = False, ended

    def pause(self) -> None:
        """What comes before the next block is not the training of an epoch."""
        self._ended = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What bounds a run, whether its GPUs are alike (None: nobody knows), that in words, and the figures behind it."""

    bound: Bound
    balanced: bool | None
    lines: tuple[str, ...]
    figures: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"bound": self.bound, "balanced": self.balanced, "lines": list(self.lines), **self.figures}


def judge(timings: Timings, plan: Plan, gpus: Gpus = ()) -> Verdict:
    """The verdict on a run; `gpus` has what `monitor` told of each replica's GPU over the whole run."""
    seconds = timings.block_seconds + timings.host_seconds
    if seconds < ENOUGH_SECONDS or timings.steps < ENOUGH_STEPS:
        line = (
            f"speed: too short to tell what bounds it ({timings.steps} steps in {seconds:.1f} s after the first block)"
        )
        return Verdict(bound="unknown", balanced=None, lines=(line,), figures={})
    busy = [value for gpu in gpus if (value := gpu.get("utilization")) is not None]
    step = timings.block_seconds / timings.steps
    host = timings.host_seconds / seconds
    figures = {
        "host_share": host,
        "step_seconds": step,
        "examples_per_second": timings.examples / seconds,
        "rows_per_replica": plan.rows_per_replica,
        "replicas": plan.replicas,
        "utilization": [gpu.get("utilization") for gpu in gpus],
    }
    bound = _bound(host, step / plan.shards_per_replica, busy)
    told = (
        f"{timings.examples / seconds:,.0f} examples/s, {_time(step)} a step of {plan.rows_per_replica} rows a replica"
    )
    if busy:
        told += f", {_gpus(busy)} busy {fmean(busy):.0f} %"
    words = _words(bound, host=host, busy=busy, plan=plan)
    balanced, balance = _balance(gpus)
    lines = (f"speed: {words[0]} ({told}); {words[1]}", *([f"GPUs: {balance}"] if balance else []))
    return Verdict(bound=bound, balanced=balanced, lines=lines, figures=figures)


def _bound(host: float, shard_seconds: float, busy: Sequence[float]) -> Bound:
    if host > HOST_SHARE:
        return "input"
    idle = bool(busy) and fmean(busy) < BUSY
    if shard_seconds < TINY_SHARD_SECONDS and (idle or not busy):
        return "size"
    # Steps are long, and yet GPUs wait: for rows, which the host gathers inside a step.
    return "input" if idle else "compute"


def _words(bound: Bound, *, host: float, busy: Sequence[float], plan: Plan) -> tuple[str, str]:
    """What it is, with the figure that decided, and what to change."""
    if bound == "input" and host > HOST_SHARE:
        return (
            f"input-bound: the host takes {100 * host:.0f} % of the time between steps",
            "a larger --batch-size, more CPU cores, or fewer --callbacks help, more devices do not",
        )
    if bound == "input":
        return "input-bound: GPUs wait for rows within steps", "more CPU cores help, more GPUs do not"
    if bound == "size":
        fewer = ", or use fewer devices" if plan.replicas > 1 else ""
        return (
            "too small to scale: steps are so short that launching them takes much of their time",
            f"give a larger --batch-size{fewer}",
        )
    return (
        f"compute-bound: the host takes {100 * host:.0f} % of the time between steps",
        "more or faster devices help" + (", and so may --precision bfloat16" if busy else ""),
    )


def _balance(gpus: Gpus) -> tuple[bool | None, str]:
    """Whether several GPUs do the same, and that in words: which one does not, and by how much."""
    told = [
        odd
        for name, said, unit in (("utilization", "was busy", " %"), ("sm_clock_mhz", "had an SM clock of", " MHz"))
        if (odd := _odd_one(gpus, name, said, unit)) is not None
    ]
    if len(gpus) < 2 or not told:
        return None, ""
    if unlike := next(filter(None, told), ""):
        return False, f"not balanced: {unlike}; look for another process on it, its power limit and its cooling"
    busy = [value for gpu in gpus if (value := gpu.get("utilization")) is not None]
    return True, "balanced" + (f", busy {min(busy):.0f} to {max(busy):.0f} %" if busy else "")


def _odd_one(gpus: Gpus, name: str, said: str, unit: str) -> str | None:
    """The GPU whose `name` is far below that of the others, in words; empty: none; None: it is not known of two."""
    known = {number: value for number, gpu in enumerate(gpus) if (value := gpu.get(name)) is not None}
    if len(known) < 2:
        return None
    lowest = min(known, key=lambda number: known[number])
    others = fmean(value for number, value in known.items() if number != lowest)
    limit = others - UNLIKE_POINTS if name == "utilization" else others * (1 - UNLIKE_CLOCK)
    if known[lowest] >= limit:
        return ""
    return f"GPU {lowest} {said} {known[lowest]:.0f}{unit}, the others {others:.0f}{unit}"


def _gpus(busy: Sequence[float]) -> str:
    return "GPU" if len(busy) == 1 else f"{len(busy)} GPUs"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
