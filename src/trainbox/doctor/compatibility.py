"""The table of what goes with what."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any


@functools.cache
def table() -> dict[str, Any]:
    """`compatibility.toml`."""
    return tomllib.loads(Path(__file__).with_name("compatibility.toml").read_text(encoding="utf-8"))


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers to compare; what follows them is left out."""
    match = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})*", version)
    return tuple(map(int, match[0].split("."))) if match else ()
