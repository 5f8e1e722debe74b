"""`trainbox export`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.options import Checkpoint, Debug, Job, Json, Run, takes
from trainbox.config import momentary
from trainbox.display import Display


@takes(*momentary())
def export(
    run: Run, *, checkpoint: Checkpoint = "last", json: Json = False, debug: Debug = False, flags: dict[str, Any]
) -> Job:
    """Write a run's last or best checkpoint as a SavedModel and as model.keras."""

    def job() -> None:
        from trainbox.cli.session import report, revisit

        run_dir, settings = revisit(run, flags)

        def work(display: Display) -> Any:
            from trainbox import jobs

            return jobs.export(run_dir, settings=settings, checkpoint=checkpoint, display=display)

        report(work, settings, json=json)

    return job
