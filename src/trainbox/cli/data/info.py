"""`trainbox data info`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.data.words import WORDS, Name
from trainbox.cli.options import ConfigFile, Debug, Job, Json, takes
from trainbox.display import Display


@takes(*WORDS)
def data_info(
    name: Name, *, json: Json = False, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]
) -> Job:
    """Describe a data set, prepared or not, without fetching anything.

    The rows of its splits are known once it is prepared.
    """

    def job() -> None:
        from trainbox.cli.app import tell
        from trainbox.cli.session import report, settle

        settings = settle({**flags, "progress": "plain"}, config_file=config, fields=(*WORDS, "progress"))

        def work(display: Display) -> Any:
            from trainbox import jobs

            return jobs.describe_data(name, data_dir=settings.config.data_dir)

        found = report(work, settings, json=json)
        if not json:
            tell("".join(f"{key:10}{value}\n" for key, value in _rows(found)))

    return job


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    from trainbox.jobs.data_sets import in_rows, in_units

    shown = found["classes"][:12]
    more = found["num_classes"] - len(shown)
    classes = " ".join(shown) + (f" and {more} more" if more else "")
    size = found["size_bytes"]
    return [
        ("name", found["name"]),
        ("version", f"{found['version']} (of {', '.join(found['versions'])})"),
        ("images", " x ".join(map(str, found["input_shape"])) + " (height, width, channels)"),
        ("classes", f"{found['num_classes']}: {classes}"),
        ("splits", in_rows(found["splits"]) if found["splits"] else "counted when it is prepared"),
        ("download", "unknown" if found["download_bytes"] is None else in_units(found["download_bytes"])),
        ("prepared", f"{in_units(size)} in {found['path']}" if found["path"] else "no"),
    ]
