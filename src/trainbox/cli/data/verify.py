"""`trainbox data verify`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.data.words import VIEW, WORDS, Names
from trainbox.cli.options import ConfigFile, Debug, Job, takes
from trainbox.display import Display


@takes(*WORDS, *VIEW)
def data_verify(names: Names, *, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """Read every file of prepared data sets and compare it with what was written.

    Ends with 4 if a file is damaged, cut or missing, and names it.
    """

    def job() -> None:
        from trainbox.cli.session import report, settle

        settings = settle({**flags, "progress": "plain"}, config_file=config, fields=(*WORDS, *VIEW, "progress"))

        def work(display: Display) -> None:
            from trainbox import jobs

            jobs.verify_data(names, settings.config, say=display.line)

        report(work, settings, json=False)

    return job
