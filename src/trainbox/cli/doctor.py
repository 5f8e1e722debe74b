"""`trainbox doctor`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from trainbox.cli.options import ConfigFile, Debug, Job, Json, takes

Verbose = Annotated[bool, typer.Option("--verbose", help="Tell of the checks that found nothing, too.")]
TensorFlow = Annotated[
    bool,
    typer.Option(
        "--tensorflow/--no-tensorflow",
        help="Where there are GPUs, load TensorFlow in a process of its own and compare the GPUs that it lists.",
    ),
]
# Of the options of a run, those that the checks have to know.
WORDS = ("device", "threads", "data_dir", "output_dir")


@takes(*WORDS)
def doctor(
    *,
    verbose: Verbose = False,
    tensorflow: TensorFlow = True,
    json: Json = False,
    config: ConfigFile = None,
    debug: Debug = False,
    flags: dict[str, Any],
) -> Job:
    """Check what a run stands on, and say what to type where something is wrong.

    Driver, GPU libraries, visible devices, container, limits, folders, foreign packages, versions. Ends with 0, or with
    3 if anything would keep a run from starting or from the GPUs of this machine.
    """

    def job() -> None:
        import os
        import sys

        from trainbox import jobs
        from trainbox.cli.app import tell
        from trainbox.cli.session import DOTENV, as_json, settle

        settings = settle(flags, config_file=config, fields=WORDS)
        found = jobs.examine(settings.config, applied=settings.environment, dotenv=DOTENV, tensorflow=tensorflow)
        if json:
            tell(as_json(found.values) + "\n")
        else:
            # What .env sets has a check of its own.
            notices = [line for line in settings.notices if not line.startswith("from .env")]
            colours = _colours(os.environ, terminal=sys.stdout is not None and sys.stdout.isatty())
            tell("".join(f"{line}\n" for line in (*notices, *found.lines(verbose=verbose, colours=colours))))
        if found.failed:
            raise SystemExit(3)

    return job


def _colours(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """On a terminal that knows them; `NO_COLOR` takes them away, `FORCE_COLOR` gives them to a file too."""
    if environ.get("NO_COLOR"):
        return False
    forced = environ.get("FORCE_COLOR", "") not in ("", "0")
    return forced or (terminal and environ.get("TERM", "") not in ("", "dumb", "unknown"))
