"""`trainbox data info`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.data.words import VIEW, WORDS, Name
from trainbox.cli.options import ConfigFile, Debug, Job, Json, takes
from trainbox.display import Display


@takes(*WORDS, *VIEW)
def data_info(
    name: Name, *, json: Json = False, config: ConfigFile = None, debug: Debug = False, flags: dict[str, Any]
) -> Job:
    """Describe a data set, prepared or not, without fetching anything.

    The rows of its splits are known once it is prepared.
    """

    def job() -> None:
        from trainbox.cli.app import tell
        from trainbox.cli.session import report, settle

        settings = settle({**flags, "progress": "plain"}, config_file=config, fields=(*WORDS, *VIEW, "progress"))

        def work(display: Display) -> Any:
            from trainbox import jobs

            return jobs.describe_data(name, settings.config)

        found = report(work, settings, json=json)
        if not json:
            tell("".join(f"{key:10}{value}\n" for key, value in _rows(found)))

    return job


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    from trainbox.jobs.data_sets import in_rows, in_units

    size, features = found["size_bytes"], found["features"]
    return [
        ("name", found["name"]),
        ("version", f"{found['version']} (of {', '.join(found['versions'])})"),
        *(_features(features, found["classes"]) if features else [("needs", found["needs"])]),
        ("splits", in_rows(found["splits"]) if found["splits"] else "counted when it is prepared"),
        ("download", "unknown" if found["download_bytes"] is None else in_units(found["download_bytes"])),
        ("prepared", f"{in_units(size)} in {found['path']}" if found["path"] else "no"),
    ]


def _features(features: dict[str, Any], classes: list[str]) -> list[tuple[str, str]]:
    shape = " x ".join(map(str, features["input_shape"]))
    if features["kind"] == "image":
        shown = [("images", f"{shape} (height, width, channels)")]
    else:
        shown = [("inputs", f"{shape}, {features['input_type']}: {', '.join(features['inputs'])}")]
    if not classes:
        return [*shown, ("label", f"{features['label']}, a number")]
    more = f" and {len(classes) - 12} more" if len(classes) > 12 else ""
    return [*shown, ("classes", f"{len(classes)}: {' '.join(classes[:12])}{more}")]
