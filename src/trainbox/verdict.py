"""A comparison of two runs in lines for people; the last one is the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainbox.comparison import DIFFERENT, SAME, SAME_SO_FAR, Comparison, Record
from trainbox.values import shown

# More of them, as after an update of everything, are counted and left to --json.
LISTED = 12
NAMED = 4

Pairs = Mapping[str, tuple[Any, Any]]


def lines(comparison: Comparison, *, changed: Sequence[str] = ()) -> list[str]:
    """All that a user wants to read of it. `changed` names values of a manifest that were changed after its run."""
    can, cannot = comparison.differences.can_alter, comparison.differences.cannot_alter
    a, b = comparison.runs
    text = [f"A  {_state(a)}", f"B  {_state(b)}"]
    text += _table("differs, and can alter the result:", can)
    text += _table("differs, and cannot alter the result:", cannot)
    text += [f"compared: {_compared(comparison)}"]
    return [*text, verdict(comparison, changed=changed)]


def verdict(comparison: Comparison, *, changed: Sequence[str] = ()) -> str:
    """The answer in one line."""
    a, b = comparison.runs
    if comparison.verdict == SAME:
        result = a.result or {}
        return f"same bits: weights {result.get('weights')}, metrics {result.get('metrics')}"
    if comparison.verdict == SAME_SO_FAR:
        open_ends = " and ".join(run.place for run in (a, b) if run.result is None)
        return f"same bits up to step {comparison.steps}, as far as both went: {open_ends} not finished"
    return f"{DIFFERENT}: {_where(comparison)}; differs: {named(comparison.differences.can_alter, changed=changed)}"


def named(can: Pairs, *, changed: Sequence[str] = ()) -> str:
    """The first few of what can alter a result, each with both values."""
    found = [f"{path} (changed in manifest.json after the run)" for path in changed]
    found += [f"{path} ({_both(pair)})" for path, pair in can.items() if path not in changed]
    if not found:
        return "nothing that the manifests record"
    rest = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _state(run: Record) -> str:
    if run.result is None:
        return f"{run.place}: not finished, step {run.step}"
    return f"{run.place}: finished, {run.step} steps, {run.result.get('epochs_done')} epochs"


def _table(title: str, pairs: Pairs) -> list[str]:
    if not pairs:
        return []
    rows = [(path, _short(a), _short(b)) for path, (a, b) in pairs.items()][:LISTED]
    wide = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:2]]
    text = [f"  {path:{wide[0]}}  {a:{wide[1]}}  {b}" for path, a, b in rows]
    rest = len(pairs) - len(rows)
    return [title, *text, *([f"  and {rest} more; --json lists all"] if rest else [])]


def _compared(comparison: Comparison) -> str:
    a, b = comparison.runs
    if not comparison.steps:
        return "the manifests alone; one of the runs has no record of its steps here"
    if a.trace and b.trace:
        return f"every step up to {comparison.steps}, by its fingerprint"
    return f"what was logged up to step {comparison.steps}; every step has a fingerprint with --reproducible alone"


def _where(comparison: Comparison) -> str:
    part, (a, b) = comparison.parting, comparison.runs
    if part is None:
        if a.step != b.step:
            return f"A ends at step {a.step} and B at step {b.step}, the same up to step {comparison.steps}"
        return "the last weights or metrics, and no step that is recorded"
    at = f"at step {part.end}" if part.start == part.end else f"between steps {part.start} and {part.end}"
    what = "the loss is the same, its bits are not" if part.value == "bits" else f"{part.value} {_both(part.pair)}"
    return f"first {at} (epoch {part.epoch}), {what}"


def _both(pair: tuple[Any, Any]) -> str:
    return " and ".join(map(_short, pair))


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and len(value) == 64 and value.isalnum():  # a SHA-256
        return f"{value[:12]}…"
    return shown(value).strip("'")
