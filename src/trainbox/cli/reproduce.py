"""`trainbox reproduce`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from trainbox.cli.options import Debug, Job, Json, Run, takes
from trainbox.config import momentary
from trainbox.display import Display

Name = Annotated[
    str | None,
    typer.Option("--run", metavar="NAME", help="Name of the new run's folder.  [default: RUN-reproduced, numbered]"),
]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="Train even if manifest, data set or code are known to have changed.")
]


@takes(*momentary())
def reproduce(
    run: Run, *, name: Name = None, anyway: Anyway = False, json: Json = False, debug: Debug = False,
    flags: dict[str, Any],
) -> Job:  # fmt: skip
    """Run a finished run again from its manifest alone, and tell whether the bits are the same.

    Ends with 0 if they are, and with 1 if not, naming the first step at which the runs part and what differs. The new
    run has a fresh folder beside the old one, and the devices and places of this command; a reproduction that was
    stopped goes on with the same words.
    """

    def job() -> None:
        from trainbox import run_folder
        from trainbox.cli.session import report, settle

        now = settle(flags, fields=momentary())
        run_dir = run_folder.find(run, now.config.output_dir, having="manifest.json")

        def work(display: Display) -> Any:
            from trainbox import jobs

            command = ["trainbox", *sys.argv[1:]]
            answer = jobs.reproduce(run_dir, now=now, name=name, anyway=anyway, command=command, display=display)
            for line in answer.lines:
                display.line(line)
            return answer.values

        if report(work, now, json=json)["verdict"] == "different":
            raise SystemExit(1)

    return job
