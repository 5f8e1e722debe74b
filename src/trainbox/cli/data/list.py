"""`trainbox data list`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.data.words import WORDS
from trainbox.cli.options import ConfigFile, Debug, Job, Json, takes


@takes(*WORDS)
def data_list(*, json: Json = False, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """List the data sets that lie prepared in the data folder."""

    def job() -> None:
        from trainbox import jobs
        from trainbox.cli.app import tell
        from trainbox.cli.session import as_json, settle

        settings = settle(flags, config_file=config, fields=WORDS)
        found = jobs.list_data(settings.config.data_dir)
        if json:
            tell(as_json(found) + "\n")
            return
        tell("".join(f"{line}\n" for line in (*settings.notices, *_lines(found, settings.config.data_dir))))

    return job


def _lines(found: list[dict[str, Any]], data_dir: Any) -> list[str]:
    from trainbox.jobs.data_sets import in_rows, in_units

    if not found:
        return [f"no data set is prepared in {data_dir.absolute()}"]
    rows = [
        (
            one["name"],
            one["version"],
            in_units(one["size_bytes"]),
            in_rows(one["splits"] or {}) or "damaged",
            one["path"],
        )
        for one in found
    ]
    wide = [max(len(str(row[column])) for row in rows) for column in range(4)]
    return ["  ".join([*(f"{row[n]:{wide[n]}}" for n in range(4)), str(row[4])]) for row in rows]
