"""The words of `--augment` and `--class-weights`, understood before TensorFlow is loaded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from trainbox.errors import UsageError
from trainbox.values import did_you_mean, shown

NONE, BALANCED = "none", "balanced"
_KNOWN = "flip, flip-vertical, crop:P, rotate:DEGREES and colour:S"
# What may stand behind the colon: words for it, and the largest number.
_AMOUNTS = {
    "crop": ("pixels, a whole number of at least 1", math.inf),
    "rotate": ("degrees, a number from 0 to 180", 180.0),
    "colour": ("a strength, a number from 0 to 1", 1.0),
}
_FLIPS = ("flip", "flip-vertical")
_PAIR = re.compile(r"([0-9]{1,9})=([^=]+)")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One random change of an image: its `kind`, and how far it goes.

    `amount` is in pixels for `crop`, in degrees for `rotate`, and a share of 1 for `colour`. A crop that is padded with
    `zeros` has black at its border, others have the image's own reflection.
    """

    kind: str
    amount: float = 0.0
    zeros: bool = False


def parse(text: str | None, *, subject: str = "--augment") -> tuple[Change, ...]:
    """The changes that a list such as `flip,crop:4,rotate:10` names, in its order; none for None.

    Raises:
        UsageError: there is no such change, or its number is missing, superfluous or out of its bounds.
    """
    return tuple(_change(word.strip(), subject) for word in text.split(",")) if text else ()


def _change(word: str, subject: str) -> Change:
    kind, *rest = word.split(":")
    if kind in _FLIPS and not rest:
        return Change(kind=kind)
    if kind not in _AMOUNTS:
        hint = "" if kind in _FLIPS else did_you_mean(kind, [*_FLIPS, *_AMOUNTS])
        raise UsageError(f"{subject} has {shown(word)}; it takes a list of {_KNOWN}{hint}")
    wanted, most = _AMOUNTS[kind]
    zeros = kind == "crop" and rest[1:] == ["zeros"]
    amount = _number(rest[0]) if len(rest) == 1 or zeros else math.nan
    least = 1.0 if kind == "crop" else 0.0
    if not least <= amount <= most or (kind == "crop" and not amount.is_integer()):
        raise UsageError(f"{subject} has {shown(word)}; behind {kind}: it takes {wanted}")
    return Change(kind=kind, amount=amount, zeros=zeros)


def parse_weights(text: str, *, subject: str = "--class-weights") -> dict[int, float] | str:
    """The weights by class that a list such as `0=1.0,3=2.5` names, or one of the words `none` and `balanced`.

    Raises:
        UsageError: it is neither, names a class twice, or has a weight that is negative or no number.
    """
    if text.strip() in (NONE, BALANCED):
        return text.strip()
    weights: dict[int, float] = {}
    for word in text.split(","):
        pair = _PAIR.fullmatch(word.strip())
        weight = _number(pair[2]) if pair else math.nan
        if pair is None or not 0 <= weight < math.inf:
            raise UsageError(
                f"{subject} has {shown(word.strip())}; it takes none, balanced, or a list of CLASS=WEIGHT with the "
                "number of a class and a weight of at least 0"
            )
        if int(pair[1]) in weights:
            raise UsageError(f"{subject} names class {int(pair[1])} twice; give each class one weight")
        weights[int(pair[1])] = weight
    return weights


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
