"""The job of `trainbox reproduce`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainbox import comparison, differences, manifest, provenance, seal, settings, verdict
from trainbox.config import RunConfig, momentary
from trainbox.differences import Pair
from trainbox.display import Display
from trainbox.errors import RunFailedError, UsageError
from trainbox.jobs import resume, training
from trainbox.jobs.comparing import Answer, compare
from trainbox.settings import DEFAULT, Settings

SECTIONS = ("config", "plan", "data", "result")
FROM_MANIFEST = "manifest"


def reproduce(
    run_dir: Path, *, now: Settings, name: str | None, anyway: bool, command: list[str], display: Display
) -> Answer:
    """Run the finished run in `run_dir` again from its manifest, in a folder beside it, and compare the two.

    Devices and places are those of `now`; `name` is that of the new folder. What would make it futile is told before
    anything is trained, and with `anyway` it is trained all the same.

    Raises:
        TrainboxError: the run is not finished, its code is gone, or whatever keeps a run from its end.
    """
    record = _finished(run_dir)
    changed = seal.broken(record)
    if changed and not anyway:
        return _futile(run_dir, {}, changed)
    words = _words(run_dir, record, now)
    different = _other_code(record, words.config) | _other_data(record, words.config, display)
    if different and not anyway:
        return _futile(run_dir, different, changed)
    for line in [*_remarks(record), *_named(different, changed)]:
        display.line(line)
    words = _in_a_folder(run_dir, words, now, name)
    training.train(words, command=command, display=display)
    assert words.config.run is not None
    return compare(run_dir, words.config.output_dir / words.config.run, changed=changed)


def _finished(run_dir: Path) -> dict[str, Any]:
    """The manifest of a run that is done, with all that is needed to do it again."""
    record = manifest.read(run_dir)
    if not record.get("result"):
        raise UsageError(f"{run_dir} is not finished: its {manifest.FILE} has no result; finish it, then reproduce it")
    if isinstance(fork := record.get("fork"), dict):
        raise UsageError(
            f"{run_dir} began from step {fork.get('step')} of {fork.get('run')}, whose weights no manifest holds, so "
            "it cannot be run again from its manifest alone; reproduce a run that began from nothing"
        )
    for section in SECTIONS:
        if not isinstance(record.get(section), dict):
            raise RunFailedError(f"{run_dir / manifest.FILE} is damaged: it lacks {section}, which a run is made from")
    return record


def _words(run_dir: Path, record: Mapping[str, Any], now: Settings) -> Settings:
    """The settings of the run: of its manifest, with its batch, shards, data set and code as exactly as it has them."""
    path, plan = run_dir / manifest.FILE, record["plan"]
    kept = {
        **record["config"],
        "batch_size": plan.get("global_batch"),
        "batch_size_per_replica": None,
        "shards": None if record["config"].get("engine") == "fit" else plan.get("shards"),
        "dataset": _dataset(record),
        **{option[2:]: f"{file}:{_function(record, option)}" for option, file in _files(record).items()},
    }
    words = settings.recorded(kept, dict.fromkeys(kept, FROM_MANIFEST), path=path)
    said = [name for name in momentary() if name in differences.WHERE or now.sources[name] != DEFAULT]
    mine = {name: getattr(now.config, name) for name in said}
    if record.get("devices", {}).get("kind") == "cpu" and not _asks_for_devices(now):
        mine["device"] = "cpu"
    sources = words.sources | {name: now.sources[name] for name in said}
    return dataclasses.replace(now, config=dataclasses.replace(words.config, **mine), sources=sources)


def _asks_for_devices(now: Settings) -> bool:
    return any(now.sources[name] != DEFAULT for name in ("device", "gpus", "devices"))


def _dataset(record: Mapping[str, Any]) -> str:
    """The data set in the one version that the run had, as the user would write it."""
    data = record["data"]
    version = str(data.get("version"))
    return f"{str(data.get('full_name')).removesuffix('/' + version)}:{version}"


def _function(record: Mapping[str, Any], option: str) -> str:
    return str(record["config"].get(option[2:])).rpartition(":")[2]


def _files(record: Mapping[str, Any]) -> dict[str, str]:
    """The user's own files by their options: where they were, or else where the words of the run point now."""
    found = {}
    for option in record.get("code", {}):
        places = [record.get("files", {}).get(option), str(record["config"].get(option[2:])).rpartition(":")[0]]
        there = [place for place in places if place and Path(place).expanduser().is_file()]
        if not there:
            raise UsageError(f"{option}: there is no file {places[0]}, which the run was made with; put it back")
        found[option] = there[0]
    return found


def _other_code(record: Mapping[str, Any], config: RunConfig) -> dict[str, Pair]:
    """The digests of own files that have changed since."""
    now = {option: reference.sha256 for option, reference in manifest.own_code(config).items()}
    before = record.get("code", {})
    return {f"code.{name}": (before[name], now.get(name)) for name in before if before[name] != now.get(name)}


def _other_data(record: Mapping[str, Any], config: RunConfig, display: Display) -> dict[str, Pair]:
    """Name, version and files of the data set that are not as recorded."""
    from trainbox.data.prepare import prepare
    from trainbox.data.view import View

    info = prepare(
        config.dataset, data_dir=config.data_dir, view=View.of(config), offline=config.offline, say=display.line
    )
    now = {"full_name": info.full_name, "checksums": info.checksums}
    before = {name: record["data"].get(name) for name in now}
    return differences.between({"data": before}, {"data": now}).can_alter


def _remarks(record: Mapping[str, Any]) -> list[str]:
    """What may keep the bits from being the same, and need not."""
    said = []
    if not record["config"].get("reproducible"):
        said.append("the run was made without --reproducible: its bits are not promised")
    here = manifest.software(os.environ) | {"host": provenance.host(), "config": record["config"]}
    other = differences.between({name: record.get(name, {}) for name in here}, here).can_alter
    if other:
        said.append(f"not as it was, so that the bits may differ: {verdict.named(other)}")
    before = [start.get("replaced", {}).get("config", {}) for start in record.get("starts", [])]
    altered = {
        path.removeprefix("config.")
        for config in filter(None, before)
        for path in differences.between({"config": config}, {"config": record["config"]}).can_alter
    }
    if altered:
        said.append(f"the run was begun with other values of {', '.join(sorted(altered))}; here it has the last ones")
    return said


def _named(different: Mapping[str, Pair], changed: list[str]) -> list[str]:
    return [f"not as it was: {verdict.named(different, changed=changed)}"] if different or changed else []


def _futile(run_dir: Path, different: Mapping[str, Pair], changed: list[str]) -> Answer:
    """The answer where nothing need be trained to know that it would be of something else."""
    why = verdict.named(different, changed=changed)
    line = f"{comparison.DIFFERENT}: {run_dir} was not run again; differs: {why} (--anyway runs it all the same)"
    values = {"verdict": comparison.DIFFERENT, "steps": 0, "first": None, "changed": changed}
    return Answer(lines=[line], values=values | {"can_alter": {k: list(v) for k, v in different.items()}}, same=False)


def _in_a_folder(run_dir: Path, words: Settings, now: Settings, name: str | None) -> Settings:
    """The settings with the name and the place of the new run.

    Raises:
        UsageError: `name` is that of another run.
    """
    here = run_dir if run_dir.name not in ("", "..") else run_dir.resolve()
    output_dir = now.config.output_dir if now.sources["output_dir"] != DEFAULT else here.parent
    number = 1
    while True:
        chosen = name or f"{here.name}-reproduced" + (f"-{number}" if number > 1 else "")
        config = dataclasses.replace(words.config, run=chosen, output_dir=output_dir)
        mine = dataclasses.replace(words, config=config, sources=words.sources | {"run": FROM_MANIFEST})
        if _is_free(output_dir / chosen, mine):
            return mine
        if name:
            raise UsageError(f"--run {name}: {output_dir / name} holds another run; choose another --run")
        number += 1


def _is_free(folder: Path, words: Settings) -> bool:
    """Whether nothing is there, or the beginning of this very run, which a signal has stopped."""
    if not (folder / settings.CONFIG_FILE).exists():
        return True
    try:
        resume.check_words(folder, words)
        begun = manifest.read(folder)
    except UsageError:
        return False
    return not begun.get("result") and begun.get("command", [])[1:2] == ["reproduce"]
