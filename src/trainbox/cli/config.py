"""`trainbox config`"""

from __future__ import annotations

from typing import Any

from trainbox.cli.options import ConfigFile, Debug, Job, Json, takes
from trainbox.config import options
from trainbox.display import printable


@takes(*options())
def config(*, config: ConfigFile = None, json: Json = False, debug: Debug = False, flags: dict[str, Any]) -> Job:
    """Show each value that `train` would use and where it comes from."""

    def job() -> None:
        from trainbox import settings as words
        from trainbox.cli.app import tell
        from trainbox.cli.session import settle

        settings = settle(flags, config_file=config)
        if json:
            tell(words.dump(settings).decode())
            return
        rows = [(name, _shown(getattr(settings.config, name)), settings.sources[name]) for name in options()]
        wide = max(len(value) for _, value, _ in rows)
        tell("".join(f"{name:24}{value:{wide}}  {source}\n" for name, value, source in rows))

    return job


def _shown(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else printable(str(value))
