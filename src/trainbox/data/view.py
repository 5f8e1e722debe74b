"""What of a data set a run trains on, and in which shape, as the user said it."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainbox.errors import UsageError

if TYPE_CHECKING:
    from trainbox.config import RunConfig

_SIZE = re.compile(r"(\d{1,5})(?:[x×](\d{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class View:
    """`inputs` and `label` are features of the set by their paths (`image`, `features/age`); without them, its own
    supervised pair. `size` is the (height, width) that images are resized to, and `length` what sequences are padded or
    cut to.
    """

    inputs: tuple[str, ...] = ()
    label: str | None = None
    size: tuple[int, int] | None = None
    length: int | None = None

    @classmethod
    def of(cls, config: RunConfig) -> View:
        """The view that the options of `config` describe. Raises UsageError for a size that is none."""
        inputs = tuple(filter(None, (name.strip() for name in (config.inputs or "").split(","))))
        return cls(inputs=inputs, label=config.label, size=_size(config.resize), length=config.pad_to)

    @classmethod
    def from_json(cls, text: str) -> View:
        """The view that `to_json` wrote."""
        told = json.loads(text)
        size = told["size"]
        return cls(**told | {"inputs": tuple(told["inputs"]), "size": tuple(size) if size else None})

    def to_json(self) -> str:
        """For another process."""
        return json.dumps(dataclasses.asdict(self))


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    height, width = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not height or not width:
        raise UsageError(f"--resize is {text!r}; it must be height x width, such as 96x128, or one number for both")
    return height, width
