"""One value of one option: read from text or from TOML, and held against the option's declaration.

Every source of words goes through here, so a value is refused in the same words wherever it comes from. `subject` is
how a message names the value's origin: `--epochs`, `environment TRAINBOX_EPOCHS`, `run.toml: epochs`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import os
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainbox.config import LARGEST, Option, RunConfig, options
from trainbox.errors import UsageError

LONGEST_SHOWN = 80

BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
TEXTS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path"}
INTEGER = re.compile(r"[+-]?[0-9]+")


@functools.cache
def kinds() -> dict[str, type]:
    """The type of every option (bool, int, float, str or Path), `None` left out."""
    hints = typing.get_type_hints(RunConfig)
    return {name: (typing.get_args(hint) or (hint,))[0] for name, hint in hints.items()}


@functools.cache
def defaults() -> dict[str, Any]:
    """The default of every option."""
    return {field.name: field.default for field in dataclasses.fields(RunConfig)}


def is_list(option: Option) -> bool:
    """Whether the option takes several values, kept as one text with commas."""
    return option.metavar == "LIST"


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most like `word`, if any is like it."""
    return next(iter(difflib.get_close_matches(word, list(candidates), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean …?` with the candidate most like `word`, or nothing."""
    found = nearest(word, candidates)
    return f"; did you mean {found}?" if found else ""


def shown(value: Any) -> str:
    """A value as a message shows it: on one line, cut if long."""
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # More digits than Python prints.
        return "a number of thousands of digits"
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 1] + "…"


def from_text(name: str, text: str, *, subject: str) -> Any:
    """The value of option `name` written as `text`, checked.

    Raises:
        UsageError: it is not of the option's type, out of its bounds or not one of its choices.
    """
    if options()[name].word == text.strip():
        return text.strip()
    try:
        value = _parse(kinds()[name], text, subject)
    except (ValueError, KeyError):
        raise _refusal(name, text, subject) from None
    return _checked(name, value, subject)


def from_data(name: str, value: Any, *, subject: str) -> Any:
    """The value of option `name` given as TOML or JSON data, checked; see `from_text`."""
    kind = kinds()[name]
    if type(value) is str and value == options()[name].word:
        return value
    if is_list(options()[name]) and isinstance(value, list) and all(type(v) in (int, str) for v in value):
        value = ",".join(str(v) for v in value)
    if kind is float and type(value) is int:
        value = float(value) if abs(value) < 2**63 else math.inf
    if kind is Path and type(value) is str:
        value = _path(value, subject)
    if not isinstance(value, kind) or (kind is int and type(value) is bool):
        raise _refusal(name, value, subject)
    return _checked(name, value, subject)


def _parse(kind: type, text: str, subject: str) -> Any:
    if kind is bool:
        return BOOLEANS[text.strip().lower()]
    if kind is int:
        if not INTEGER.fullmatch(text.strip()):
            raise ValueError(text)
        return int(text)
    if kind is float:
        return float(text)
    return _path(text, subject) if kind is Path else text


def _path(text: str, subject: str) -> Path | str:
    """The path, `~` expanded; an empty text stays one, so that it is refused rather than read as the current folder."""
    expanded = os.path.expanduser(text)
    if expanded.startswith("~"):
        raise UsageError(f"{subject} is {shown(text)}; no home folder is known for this ~, so give the whole path")
    return Path(expanded) if text.strip() else text


def _checked(name: str, value: Any, subject: str) -> Any:
    option = options()[name]
    if isinstance(value, float | int):
        valid = math.isfinite(value) and _inside(option, value)
    elif option.choices:
        valid = value in option.choices
    else:
        text = str(value)
        valid = bool(text.strip()) and "\0" not in text
    if not valid:
        raise _refusal(name, value, subject)
    return value


def _inside(option: Option, value: float) -> bool:
    low = -math.inf if option.minimum is None else option.minimum
    high = math.inf if option.maximum is None else option.maximum
    above = value > low if option.open_minimum else value >= low
    below = value < high if option.open_maximum else value <= high
    return above and below


def _refusal(name: str, value: Any, subject: str) -> UsageError:
    option = options()[name]
    text = str(value) if isinstance(value, Path) else value
    if isinstance(text, str) and not text.strip():
        return UsageError(f"{subject} is empty; it must be {_wanted(name, option)}")
    hint = did_you_mean(text, option.choices) if isinstance(text, str) else ""
    if name == "gpus" and isinstance(text, str) and "," in text:
        hint = ": how many; --devices names which"
    elif option.maximum == LARGEST and type(text) is int and text > LARGEST:
        hint = f" and at most {LARGEST}"
    return UsageError(f"{subject} is {shown(text)}; it must be {_wanted(name, option)}{hint}")


def _wanted(name: str, option: Option) -> str:
    if option.choices:
        return "one of " + ", ".join(option.choices)
    wanted = ", ".join(filter(None, [TEXTS[kinds()[name]], bounds(option)]))
    return f"{wanted}, or {option.word}" if option.word else wanted


def bounds(option: Option) -> str:
    """The bounds of a number in words, such as `at least 0 and below 1`; empty if it has none worth telling."""
    if option.minimum is not None and (option.maximum or LARGEST) < LARGEST and not option.open_maximum:
        return f"from {option.minimum:g} to {option.maximum:g}"
    parts = []
    if option.minimum is not None:
        parts.append(f"{'above' if option.open_minimum else 'at least'} {option.minimum:g}")
    if option.maximum is not None and option.maximum < LARGEST:
        parts.append(f"{'below' if option.open_maximum else 'at most'} {option.maximum:g}")
    return " and ".join(parts)
