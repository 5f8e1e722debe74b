"""How an option is declared: with its default, its bounds and its help."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

# What TensorFlow can count in the integers that it uses for rows and steps.
LARGEST = 2**31 - 1
# The word for a batch that is found by trying.
AUTO = "auto"


@dataclass(frozen=True, kw_only=True)
class Option:
    """What the edge needs to know of one field: help text, bounds and choices, and a word that a number may be instead.

    `minimum` and `maximum` are inclusive; with `open_minimum` or `open_maximum` the bound itself is refused.
    """

    help: str
    panel: str
    minimum: float | None = None
    maximum: float | None = None
    open_minimum: bool = False
    open_maximum: bool = False
    choices: tuple[str, ...] = ()
    word: str | None = None
    metavar: str | None = None


def option(default: Any, help: str, *, panel: str, **bounds: Any) -> Any:
    """A dataclass field that carries its `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help=help, panel=panel, **bounds)})
