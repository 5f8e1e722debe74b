"""`trainbox compare`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainbox.cli.options import Debug, Job, Json, Run, takes

Other = Annotated[str, typer.Argument(metavar="RUN", help="The run to compare it with.")]


@takes("output_dir")
def compare(run: Run, other: Other, *, json: Json = False, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """Tell the first step at which two runs part, and what differs.

    Ends with 0 if the bits are the same, and with 1 if not. Runs with --reproducible leave a fingerprint of every step,
    by which it is named exactly; of others the losses and metrics that were logged are compared, and of a run that is
    not finished what there is.
    """

    def job() -> None:
        from trainbox import jobs, run_folder
        from trainbox.cli.app import tell
        from trainbox.cli.session import as_json, settle

        output_dir = settle(flags, fields=("output_dir",)).config.output_dir
        answer = jobs.compare(*(run_folder.find(one, output_dir, having="manifest.json") for one in (run, other)))
        tell((as_json(answer.values) if json else "\n".join(answer.lines)) + "\n")
        if not answer.same:
            raise SystemExit(1)

    return job
