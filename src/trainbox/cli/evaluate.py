"""`trainbox evaluate`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainbox.cli.options import Checkpoint, Debug, Job, Json, Run, takes
from trainbox.config import momentary
from trainbox.display import Display

Split = Annotated[str, typer.Option("--split", metavar="NAME", help="Split of the run's data set.  [default: test]")]


@takes(*momentary())
def evaluate(
    run: Run,
    *,
    split: Split = "test",
    checkpoint: Checkpoint = "last",
    json: Json = False,
    debug: Debug = False,
    flags: dict[str, Any],
) -> Job:
    """Evaluate a run's last or best checkpoint on a split of its data set."""

    def job() -> None:
        from trainbox.cli.session import report, revisit

        run_dir, settings = revisit(run, flags)

        def work(display: Display) -> Any:
            from trainbox import jobs

            return jobs.evaluate(run_dir, settings=settings, split=split, checkpoint=checkpoint, display=display)

        report(work, settings, json=json)

    return job
