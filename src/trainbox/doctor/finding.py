"""What a check says: how bad it is, what was found, and the command to type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "warning", "failure"]
# From the least to the worst.
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "failure")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that a check found. `remedy` is what to type or to change, empty where nothing is to be done."""

    severity: Severity
    message: str
    remedy: str = ""


def ok(message: str) -> list[Finding]:
    """The whole answer of a check that has nothing to object to, or nothing to look at."""
    return [Finding(severity="ok", message=message)]


def note(message: str, remedy: str = "") -> Finding:
    """Worth knowing, and no fault."""
    return Finding(severity="note", message=message, remedy=remedy)


def warning(message: str, remedy: str) -> Finding:
    """A run starts, and is slower than it could be, or may fail later, or lose what it writes."""
    return Finding(severity="warning", message=message, remedy=remedy)


def failure(message: str, remedy: str) -> Finding:
    """A run does not start, or not on the GPUs of this machine."""
    return Finding(severity="failure", message=message, remedy=remedy)
