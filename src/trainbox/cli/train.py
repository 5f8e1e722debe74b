"""`trainbox train`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from trainbox.cli.options import ConfigFile, Debug, Job, takes
from trainbox.config import options

Fork = Annotated[
    str | None,
    typer.Option(
        "--fork",
        metavar="NAME",
        help="Go on from --run in a new run of this name; other options may differ from its own.",
    ),
]


@takes(*options())
def train(*, fork: Fork = None, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """Train a model, or go on with the run of the same name.

    Every option can be given as a flag, as a variable (TRAINBOX_BATCH_SIZE) of the environment or of a .env file in
    the current folder, or in a TOML file (batch_size = 64); the first of these that gives it wins.
    """

    def job() -> None:
        from trainbox.cli.session import screen, settle

        settings = settle(flags, config_file=config)
        with screen(settings, sys.stdout) as display:
            from trainbox import jobs

            jobs.train(settings, command=["trainbox", *sys.argv[1:]], display=display, fork=fork)

    return job
