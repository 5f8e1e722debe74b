"""The job of `trainbox compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox import comparison, manifest, metrics, trace, verdict
from trainbox.comparison import Record
from trainbox.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a comparison came to: lines for people, values for JSON, and whether no difference was found."""

    lines: list[str]
    values: dict[str, Any]
    same: bool


def compare(a: Path, b: Path, *, changed: Sequence[str] = ()) -> Answer:
    """The runs in two folders beside one another, as far as both went.

    `changed` names values of the first one's manifest that were changed after the run.

    Raises:
        UsageError: one of them is no run, or has nothing to compare yet.
        RunFailedError: a file of them is damaged.
    """
    records = [_record(a), _record(b)]
    for record in records:
        if record.result is None and not record.step:
            raise UsageError(f"{record.place} has no step to compare yet; train it first")
    found = comparison.compare(*records)
    return Answer(
        lines=verdict.lines(found, changed=changed),
        values=found.as_dict() | ({"changed": list(changed)} if changed else {}),
        same=found.verdict != comparison.DIFFERENT,
    )


def _record(run_dir: Path) -> Record:
    return Record(
        place=str(run_dir), manifest=manifest.read(run_dir), trace=trace.read(run_dir), metrics=metrics.read(run_dir)
    )
