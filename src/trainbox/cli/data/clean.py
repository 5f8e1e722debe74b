"""`trainbox data clean`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trainbox.cli.data.words import WORDS
from trainbox.cli.options import ConfigFile, Debug, Job, takes
from trainbox.display import Display

DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell what would be removed, and remove nothing.")]


@takes(*WORDS)
def data_clean(
    *, dry_run: DryRun = False, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]
) -> Job:
    """Remove what killed preparations left, and never the work of a live one.

    A preparation holds a lock while it lives. What TFDS leaves when it is used alone has none, and goes when nothing in
    it has changed for a day.
    """

    def job() -> None:
        from trainbox.cli.session import report, settle

        settings = settle({**flags, "progress": "plain"}, config_file=config, fields=(*WORDS, "progress"))

        def work(display: Display) -> None:
            from trainbox import jobs

            jobs.clean_data(settings.config.data_dir, dry_run=dry_run, say=display.line)

        report(work, settings, json=False)

    return job
