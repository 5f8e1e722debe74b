"""Where words come from besides flags: environment variables, a `.env` file, a TOML file; judged in `values`."""

from __future__ import annotations

import io
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox import values
from trainbox.config import options
from trainbox.errors import UsageError

PREFIX = "TRAINBOX_"
CONFIG_VARIABLE = "TRAINBOX_CONFIG"
# Honoured below the variable of the option itself: what people have set for TFDS already.
ALSO = {"data_dir": ("TFDS_DATA_DIR",)}
# The folders an image is made for. They rank as defaults, so that a file or `.env` of the user's own still beats them.
IMAGE_DEFAULTS = {"data_dir": "TRAINBOX_DEFAULT_DATA_DIR", "output_dir": "TRAINBOX_DEFAULT_OUTPUT_DIR"}
# Variables of the launcher, the image and the tests, which are no options of a run.
RESERVED = re.compile(
    r"TRAINBOX_(RUNTIME|VARIANT|BASE|IMAGE|GPU|SIF|VENV|SITE|REVISION|REQUIRE|DEFAULT|TEST)(_[A-Z0-9_]+)?"
)
# Kubernetes sets these for a service that is called trainbox.
SERVICE_LINK = re.compile(r"TRAINBOX_(SERVICE_(HOST|PORT)|PORT)(_.+)?")
TYPO_CUTOFF = 0.85


@dataclass(frozen=True, kw_only=True)
class Words:
    """A text or a piece of data that one source gives for one option."""

    value: Any
    subject: str
    source: str
    is_text: bool = True


def variable(name: str) -> str:
    """The environment variable of an option."""
    return PREFIX + name.upper()


def clean(text: str) -> str:
    """A variable's value without the blanks, carriage return and quotes that `docker --env-file` leaves in it."""
    text = text.strip()
    return text[1:-1].strip() if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def read_dotenv(path: Path | None) -> dict[str, str]:
    """The variables of a `.env` file; none if it is no file (a folder of that name is often a virtualenv).

    Raises:
        UsageError: it cannot be read, or a line of it is not of the form NAME=value.
    """
    if path is None or not os.path.isfile(path):  # Unlike the path's own, it answers for a closed folder too.
        return {}
    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    text = _read(path).replace("\r\n", "\n")
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            raise UsageError(f"{path} line {binding.original.line} is not of the form NAME=value; correct or remove it")
    found = {name: value for name, value in dotenv_values(stream=io.StringIO(text)).items() if value is not None}
    for name, value in found.items():
        if "\0" in value or "\0" in name:
            raise UsageError(f"{path} has a NUL character in {values.shown(name)}, which no variable can hold")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        name = str(path) if str(path).isprintable() else values.shown(str(path))
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a UTF-8 text (byte {error.start}); save it as UTF-8") from error


def from_variables(name: str, variables: Mapping[str, str], place: str) -> Iterator[Words]:
    """What `variables` of `place` ("environment", ".env") give for an option, strongest first; empty is not given."""
    for key in (variable(name), *ALSO.get(name, ())):
        text = clean(variables.get(key, ""))
        if text:
            yield Words(value=text, subject=f"{place} {key}", source=f"{place} {key}")


def check_variables(variables: Mapping[str, str], place: str) -> list[str]:
    """Notices of `TRAINBOX_` variables that are no option.

    Raises:
        UsageError: one looks like an option misspelt.
    """
    known = [variable(name) for name in options()]
    notices = []
    for key in sorted(variables):
        if not key.startswith(PREFIX) or key in known or key == CONFIG_VARIABLE:
            continue
        if RESERVED.fullmatch(key) or SERVICE_LINK.fullmatch(key):
            continue
        meant = values.nearest(key.removeprefix(PREFIX), [k.removeprefix(PREFIX) for k in known], cutoff=TYPO_CUTOFF)
        meant = meant or next((k.removeprefix(PREFIX) for k in known if k.startswith(f"{key}_")), None)
        if meant:
            raise UsageError(f"{place} {key} is no option of trainbox; did you mean {PREFIX}{meant}?")
        notices.append(f"{place} {key} is no option of trainbox and is ignored")
    return notices


def read_toml(path: Path) -> dict[str, Words]:
    """What a TOML file gives, by option; its keys are the options' names with dashes or underscores.

    Raises:
        UsageError: it cannot be read or parsed, or has a key that is no option.
    """
    try:
        table = tomllib.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    found: dict[str, Words] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in options():
            raise _unknown_key(path, key, value)
        if name in found:
            raise UsageError(f"{path} gives {key} twice, with a dash and with an underscore; keep one")
        found[name] = Words(value=value, subject=f"{path}: {key}", source=f"config {path}", is_text=False)
    return found


def _unknown_key(path: Path, key: str, value: Any) -> UsageError:
    if isinstance(value, dict):
        return UsageError(f"{path} has a table [{key}]; options stand at the top of the file, without tables")
    meant = values.did_you_mean(key.replace("-", "_"), options()).replace("_", "-")
    return UsageError(f"{path} has the unknown key {values.shown(key)}{meant or '; trainbox train --help lists all'}")
