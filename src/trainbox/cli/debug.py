"""`--debug`, which every command takes, and so does `trainbox` before it."""

from __future__ import annotations

from typing import Annotated

import typer

Debug = Annotated[bool, typer.Option("--debug", help="With an error, show its traceback too.")]
