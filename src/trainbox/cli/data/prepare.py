"""`trainbox data prepare`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.data.words import VIEW, WORDS, Names
from trainbox.cli.options import ConfigFile, Debug, Job, takes
from trainbox.display import Display


@takes(*WORDS, *VIEW, "offline", "progress")
def data_prepare(names: Names, *, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """Prepare data sets, so that runs need no network.

    Ends with 0 when all are prepared, now or before, and says where.
    """

    def job() -> None:
        from trainbox.cli.session import report, settle

        settings = settle(flags, config_file=config, fields=(*WORDS, *VIEW, "offline", "progress"))

        def work(display: Display) -> None:
            from trainbox import jobs

            jobs.prepare_data(names, settings.config, say=display.line)

        report(work, settings, json=False)

    return job
