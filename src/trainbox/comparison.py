"""Two runs beside one another: the first step at which they part, what differs, and a verdict (no TensorFlow)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainbox import differences
from trainbox.differences import Differences

SAME, SAME_SO_FAR, DIFFERENT = "same bits", "same so far", "different"
_DIGESTS = ("weights", "metrics")
_PARTS = ("interval/", "train/", "validation/", "test/")

Line = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run has left: `place` to name it by, and the contents of its manifest, trace and metrics."""

    place: str
    manifest: Mapping[str, Any]
    trace: Sequence[Line]
    metrics: Sequence[Line]

    @property
    def result(self) -> Mapping[str, Any] | None:
        """How it ended, or None while it has not."""
        return self.manifest.get("result") or None

    @property
    def step(self) -> int:
        """The last step that is known of it."""
        logged = [lines[-1]["step"] for lines in (self.trace, self.metrics) if lines]
        return int((self.result or {}).get("step", 0)) or max(logged, default=0)


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where two runs part: at a step from `start` to `end`, which are one if it is known exactly.

    `value` names what differs there, and `pair` is what the two runs have.
    """

    start: int
    end: int
    epoch: int
    value: str
    pair: tuple[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs compared. `steps` is the last step that both have a record of; up to `parting` they are the same."""

    runs: tuple[Record, Record]
    verdict: str
    steps: int
    parting: Parting | None
    differences: Differences

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        part = self.parting
        return {
            "verdict": self.verdict,
            "steps": self.steps,
            "first": part and dataclasses.asdict(part),
            "can_alter": {path: list(pair) for path, pair in self.differences.can_alter.items()},
            "cannot_alter": {path: list(pair) for path, pair in self.differences.cannot_alter.items()},
            "runs": [
                {"run": run.place, "finished": run.result is not None, "step": run.step, **_digests(run)}
                for run in self.runs
            ],
        }


def compare(a: Record, b: Record) -> Comparison:
    """The comparison of two runs, as far as both went."""
    traced = _common(a.trace, b.trace)
    parting = _parting_by_trace(a, b)
    logged = _parting_by_metrics(a, b, traced=parting.start - 1 if parting else max(traced, default=0))
    if logged and (parting is None or logged.end < parting.start):
        parting = logged
    both_done = a.result is not None and b.result is not None
    # The last steps' weights are not in the losses, and a callback may put others back.
    if parting or (both_done and (a.step != b.step or _digests(a) != _digests(b))):
        verdict = DIFFERENT
    else:
        verdict = SAME if both_done else SAME_SO_FAR
    steps = max([*traced, *_common(a.metrics, b.metrics)], default=0)
    found = differences.between(a.manifest, b.manifest)
    return Comparison(runs=(a, b), verdict=verdict, steps=steps, parting=parting, differences=found)


def _common(a: Sequence[Line], b: Sequence[Line]) -> set[int]:
    return {line["step"] for line in a} & {line["step"] for line in b}


def _parting_by_trace(a: Record, b: Record) -> Parting | None:
    """The first step of both traces that is not the same."""
    others = {line["step"]: line for line in b.trace}
    for line in a.trace:
        other = others.get(line["step"], line)
        for value in ("loss", "bits"):
            if line.get(value) != other.get(value):
                step = line["step"]
                pair = line.get(value), other.get(value)
                return Parting(start=step, end=step, epoch=_epoch(a, step), value=value, pair=pair)
    return None


def _parting_by_metrics(a: Record, b: Record, *, traced: int) -> Parting | None:
    """The first logged value that is not the same; steps up to `traced` are known to be, so there it is exact."""
    others = _by_step(b.metrics)
    known = traced
    for step, values in _by_step(a.metrics).items():
        for name, value in values.items():
            if step in others and name in others[step] and others[step][name] != value:
                pair = value, others[step][name]
                start = min(known + 1, step)
                return Parting(start=start, end=step, epoch=_epoch(a, step), value=name, pair=pair)
        if step in others:
            known = max(known, step)
    return None


def _by_step(metrics: Sequence[Line]) -> dict[int, dict[str, Any]]:
    """Losses, metrics and rates by step; times left out."""
    found: dict[int, dict[str, Any]] = {}
    for line in metrics:
        counted = {n: v for n, v in line.items() if n.startswith(_PARTS) and not n.endswith(("seconds", "_per_second"))}
        found.setdefault(line["step"], {}).update(counted)
    return found


def _epoch(run: Record, step: int) -> int:
    """The epoch of a step, from 1 on."""
    steps = run.manifest.get("plan", {}).get("steps_per_epoch") or step
    return (step - 1) // int(steps) + 1


def _digests(run: Record) -> dict[str, Any]:
    return {name: (run.result or {}).get(name) for name in _DIGESTS}
