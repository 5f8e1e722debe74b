"""Parts of splits, in TFDS's own words: `train[:90%]`, `train[1000:]+validation`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from trainbox.data import prepared
from trainbox.data.names import nearest
from trainbox.data.prepared import DatasetInfo
from trainbox.errors import DataError


class Part(NamedTuple):
    """Rows `first` to `last`, that one left out, of a split."""

    split: str
    first: int
    last: int


def parts(info: DatasetInfo, expression: str) -> list[Part]:
    """What `expression` names of the set. Raises DataError where that is nothing."""
    if expression in info.splits:
        return [Part(expression, 0, info.splits[expression])]
    found = [Part(one.splitname, one.from_ or 0, _end(one, info)) for one in _absolute(info, expression)]
    if not sum(part.last - part.first for part in found):
        raise DataError(f"{expression!r} names no rows of data set {info.full_name}, which has {_told(info)}")
    return found


def count(info: DatasetInfo, expression: str) -> int:
    """The rows that `expression` names. Raises DataError."""
    return sum(part.last - part.first for part in parts(info, expression))


def shared(info: DatasetInfo, one: str, other: str) -> int:
    """How many rows two expressions have in common."""
    return sum(
        max(min(a.last, b.last) - max(a.first, b.first), 0)
        for a in parts(info, one)
        for b in parts(info, other)
        if a.split == b.split
    )


def _end(one: Any, info: DatasetInfo) -> int:
    return info.splits[one.splitname] if one.to is None else max(int(one.to), one.from_ or 0)


def _absolute(info: DatasetInfo, expression: str) -> list[Any]:
    import tensorflow_datasets as tfds

    known = prepared.builder(Path(info.path)).info.splits
    try:
        return list(tfds.core.splits.AbstractSplit.from_spec(expression).to_absolute(known))
    except Exception as error:  # ValueError, NotImplementedError and AssertionError in various words
        name = expression.partition("[")[0].strip()
        if name not in info.splits and name.isidentifier():
            raise DataError(
                f"data set {info.full_name} has no split {name!r}: it has {_told(info)}; did you mean "
                f"{nearest(name, info.splits).partition(',')[0]}?"
            ) from error
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{expression!r} is no part of data set {info.full_name} ({reason}): splits are written like train, "
            "train[:90%] or train[1000:]+test"
        ) from error


def _told(info: DatasetInfo) -> str:
    return ", ".join(f"{name} {rows:,}" for name, rows in info.splits.items())
