"""Words into settings: flag, else environment, else `.env`, else a TOML file, else default. Also: `config.json`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainbox import combinations, sources, values
from trainbox.config import RunConfig, momentary, options
from trainbox.errors import UsageError
from trainbox.sources import Words

CONFIG_FILE = "config.json"
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A complete configuration and where each of its values came from, in words such as `flag --epochs`.

    `environment` holds the variables of `.env` that the process lacks and should get before TensorFlow is imported;
    `notices` are lines for the user.
    """

    config: RunConfig
    sources: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    notices: tuple[str, ...] = ()


def resolve(
    flags: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    dotenv: Path | None,
    config_file: Path | None,
    fields: Collection[str] | None = None,
) -> Settings:
    """The settings that `flags` (field -> value, None where not given) and the other sources make together.

    Only `fields` are read from the sources, by default all; the others keep their defaults. Nothing is changed but by
    the caller, who applies `environment`.

    Raises:
        UsageError: a source cannot be read, a value is wrong, an option unknown, or two exclude each other.
    """
    local = {name: value for name, value in sources.read_dotenv(dotenv).items() if name not in environ}
    notices = sources.check_variables(environ, "environment") + sources.check_variables(local, ".env")
    config_file = config_file or _named_config_file(environ, local)
    table = sources.read_toml(config_file) if config_file else {}
    found = {
        name: next(_candidates(name, flags, environ, local, table), None)
        for name in options()
        if fields is None or name in fields
    }
    given = {name: words for name, words in found.items() if words}
    config = RunConfig(**{name: _value(name, words) for name, words in given.items()})
    origin = {name: given[name].source if name in given else DEFAULT for name in options()}
    combinations.check(config, origin)
    return Settings(config=config, sources=origin, environment=local, notices=(*notices, *_applied(local)))


def _named_config_file(*places: Mapping[str, str]) -> Path | None:
    texts = (sources.clean(place.get(sources.CONFIG_VARIABLE, "")) for place in places)
    return next((Path(os.path.expanduser(text)) for text in texts if text), None)


def _candidates(
    name: str,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    local: Mapping[str, str],
    table: Mapping[str, Words],
) -> Iterator[Words]:
    """What the sources give for one option, the strongest first."""
    flag = ("--no-" if flags.get(name) is False else "--") + name.replace("_", "-")
    if flags.get(name) not in (None, [], ()):
        yield Words(value=flags[name], subject=flag, source=f"flag {flag}", is_text=False)
    own = [*sources.from_variables(name, environ, "environment"), *sources.from_variables(name, local, ".env")]
    # The option's own variable in `.env` beats a borrowed one of the environment.
    yield from sorted(own, key=lambda words: not words.source.endswith(sources.variable(name)))
    if name in table:
        yield table[name]
    default = sources.clean(environ.get(sources.IMAGE_DEFAULTS.get(name, ""), ""))
    if default:
        key = sources.IMAGE_DEFAULTS[name]
        yield Words(value=default, subject=f"environment {key}", source=DEFAULT)


def _value(name: str, words: Words) -> Any:
    if words.is_text:
        return values.from_text(name, words.value, subject=words.subject)
    return values.from_data(name, words.value, subject=words.subject)


def _applied(local: Mapping[str, str]) -> list[str]:
    return [f"from .env: {', '.join(sorted(local))}"] if local else []


def recall(recorded: Settings, now: Settings) -> Settings:
    """The settings of an earlier run, on the devices and with the places of now."""
    mine = momentary()
    config = dataclasses.replace(recorded.config, **{name: getattr(now.config, name) for name in mine})
    origin = {name: (now if name in mine else recorded).sources[name] for name in options()}
    return dataclasses.replace(now, config=config, sources=origin)


def dump(settings: Settings) -> bytes:
    """What `config.json` keeps: each value and its source."""
    record = {
        "values": {name: _plain(getattr(settings.config, name)) for name in options()},
        "sources": {name: settings.sources[name] for name in options()},
    }
    return (json.dumps(record, indent=2) + "\n").encode()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def load(run_dir: Path) -> Settings:
    """The settings that `config.json` in `run_dir` keeps; an option that it lacks has its default.

    Raises:
        UsageError: it is absent, damaged, or has an option that this version does not know.
    """
    path = run_dir / CONFIG_FILE
    try:
        record = json.loads(path.read_bytes())
        kept, origin = dict(record["values"]), dict(record["sources"])
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; a run's folder has this file") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} is damaged; train into another --run, or restore the file") from error
    return recorded(kept, origin, path=path)


def recorded(kept: Mapping[str, Any], origin: Mapping[str, Any], *, path: Path) -> Settings:
    """The settings of which `path` keeps these values and sources; an option that it lacks has its default.

    Raises:
        UsageError: a value is wrong, or of an option that this version does not know.
    """
    unknown = sorted(set(kept) - set(options()))
    if unknown:
        raise UsageError(f"{path} has {unknown[0]}, unknown to this version of trainbox; use the one that wrote it")
    said = {name: value for name, value in kept.items() if value is not None}
    read = {name: values.from_data(name, value, subject=f"{path}: {name}") for name, value in said.items()}
    return Settings(config=RunConfig(**read), sources={name: str(origin.get(name, DEFAULT)) for name in options()})
