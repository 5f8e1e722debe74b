"""The name of a data set as the user writes it: `mnist`, `emnist/balanced`, `mnist:3.0.1`, `emnist/letters:3.*.*`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from trainbox.errors import DataError

VERSION = re.compile(r"\d+\.\d+\.\d+")
_NAME = re.compile(
    r"(?P<name>[a-z]\w*)(?:/(?P<config>\w[\w.+-]*))?(?::(?P<version>(?:\d+|\*)(?:\.(?:\d+|\*)){2}))?", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class DatasetName:
    """A data set of TFDS; without `config` or `version` its default configuration and newest version are meant."""

    name: str
    config: str | None = None
    version: str | None = None

    def __str__(self) -> str:
        config = f"/{self.config}" if self.config else ""
        return f"{self.name}{config}" + (f":{self.version}" if self.version else "")

    def accepts(self, version: str) -> bool:
        """Whether `version`, three numbers, is one that this name asks for; `*` stands for any number."""
        if self.version is None:
            return True
        return all(
            asked in ("*", given) for asked, given in zip(self.version.split("."), version.split("."), strict=True)
        )


def parse(text: str) -> DatasetName:
    """The data set that `text` names. Raises DataError when it is no such name."""
    match = _NAME.fullmatch(text)
    if match is None:
        raise DataError(
            f"{text!r} is not the name of a data set: names are written like mnist, emnist/balanced or mnist:3.0.1"
        )
    return DatasetName(**match.groupdict())


def nearest(word: str, known: Iterable[str]) -> str:
    """The three known words most like `word`, in one phrase."""
    return ", ".join(difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.0))
