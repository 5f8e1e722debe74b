"""What the checks found, in lines for a person and as data."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from trainbox.display import printable
from trainbox.doctor import Checked
from trainbox.doctor.finding import SEVERITIES, Finding

_WORDS = {"ok": "ok", "note": "note", "warning": "warning", "failure": "FAILURE"}
_COLOURS = {"ok": "\x1b[32m", "note": "\x1b[36m", "warning": "\x1b[33m", "failure": "\x1b[1;31m"}
_RESET = "\x1b[0m"
_WIDE = max(map(len, _WORDS.values()))
_COLUMNS = 110


def lines(checked: Sequence[Checked], *, verbose: bool, colours: bool) -> list[str]:
    """Each finding with its check and its remedy; what is in order by name alone unless `verbose`; then the verdict."""
    told: list[str] = []
    last = ""
    for check in checked:
        for finding in check.findings:
            if verbose or finding.severity != "ok":
                told += _finding(check.name, finding, last, colours)
                last = finding.remedy
    fine = [check.name for check in checked if check.severity == "ok"]
    if fine and not verbose:
        first, *more = textwrap.wrap(", ".join(fine), _COLUMNS, break_on_hyphens=False)
        told += [f"{_word('ok', colours)}  {first}", *(f"{' ' * _WIDE}  {line}" for line in more)]
    return [*told, verdict(checked)]


def _finding(name: str, finding: Finding, last: str, colours: bool) -> Iterator[str]:
    yield f"{_word(finding.severity, colours)}  {name}: {printable(finding.message)}"
    if finding.remedy:
        remedy = "the same" if finding.remedy == last else printable(finding.remedy)
        yield f"{' ' * _WIDE}  → {remedy}"


def _word(severity: str, colours: bool) -> str:
    word = f"{_WORDS[severity]:{_WIDE}}"
    return f"{_COLOURS[severity]}{word}{_RESET}" if colours else word


def verdict(checked: Sequence[Checked]) -> str:
    """How many checks there were, and how many things were found of each kind."""
    counts = _counts(checked)
    found = [f"{n} {word}{'s' * (n != 1)}" for word in reversed(SEVERITIES[1:]) if (n := counts[word])]
    return f"{len(checked)} check{'s' * (len(checked) != 1)}: {', '.join(found) or 'all is well'}"


def _counts(checked: Sequence[Checked]) -> dict[str, int]:
    every = [finding.severity for check in checked for finding in check.findings]
    return {severity: every.count(severity) for severity in SEVERITIES}


def as_data(checked: Sequence[Checked]) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "verdict": max((check.severity for check in checked), key=SEVERITIES.index, default="ok"),
        "checks": [
            {
                "check": check.name,
                "severity": check.severity,
                "findings": [
                    {"severity": one.severity, "message": one.message, "remedy": one.remedy or None}
                    for one in check.findings
                ],
            }
            for check in checked
        ],
    }
