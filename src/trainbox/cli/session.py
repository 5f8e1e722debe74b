"""What every command does around its job: settle the words, open the display, keep standard output pure."""

from __future__ import annotations

import contextlib
import json as jsonlib
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from trainbox import run_folder
from trainbox import settings as words
from trainbox.cli.app import tell
from trainbox.config import momentary
from trainbox.display import Display, open_display
from trainbox.settings import Settings

DOTENV = Path(".env")


def settle(
    flags: Mapping[str, Any], *, config_file: Path | None = None, fields: Collection[str] | None = None
) -> Settings:
    """The settings of this process; the variables of `.env` are in its environment from here on.

    Raises:
        UsageError: see `trainbox.settings.resolve`.
    """
    found = words.resolve(flags, environ=os.environ, dotenv=DOTENV, config_file=config_file, fields=fields)
    os.environ.update(found.environment)
    return found


def revisit(run: str, flags: Mapping[str, Any]) -> tuple[Path, Settings]:
    """The folder of an earlier run, and its settings with the devices and places of now.

    Raises:
        UsageError: there is no such run, its `config.json` is damaged, or a word of now is wrong.
    """
    now = settle(flags, fields=momentary())
    folder = run_folder.find(run, now.config.output_dir)
    return folder, words.recall(words.load(folder), now)


@contextlib.contextmanager
def screen(settings: Settings, stream: TextIO | None) -> Iterator[Display]:
    """The display of a job on `stream`, which leaves the terminal as it was."""
    display = open_display(settings.config.progress, stream=stream, environ=os.environ)
    try:
        for notice in settings.notices:
            display.line(notice)
        yield display
    finally:
        display.close()


def report(work: Callable[[Display], Any], settings: Settings, *, json: bool) -> Any:
    """Do `work` on a display and return its result; with `json`, that is all that standard output gets."""
    output = _take_output() if json else None
    with screen(settings, sys.stderr if json else sys.stdout) as display:
        result = work(display)
    if json:
        tell(as_json(result) + "\n", output)
    return result


def _take_output() -> TextIO | None:
    """Standard output for one writer: what any library prints there from now on goes to standard error."""
    if sys.stdout is None:
        return None
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(kept, "w", encoding="utf-8")


def as_json(value: Any) -> str:
    """JSON on one line; NaN and infinities, which JSON lacks, as null."""
    return jsonlib.dumps(_finite(value), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
