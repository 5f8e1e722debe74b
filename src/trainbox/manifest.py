"""`manifest.json`: what ran, on what, from what, and with what result (no TensorFlow).

The file describes the latest start. `starts` has one entry for each start of the run, the first one first. Where a
resumed run differs from what it resumes (other devices, another version), its entry keeps the old values in `replaced`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainbox
from trainbox import plugin, provenance, seal
from trainbox.config import RunConfig, options
from trainbox.devices import Selection
from trainbox.errors import RunFailedError, UsageError
from trainbox.plan import Plan
from trainbox.run_folder import atomic_write

if TYPE_CHECKING:
    from trainbox.data.prepare import DatasetInfo

FILE = "manifest.json"
_OF_ONE_START = ("starts", "result", "command", seal.KEY)


def describe(
    *,
    config: RunConfig,
    sources: Mapping[str, str],
    selection: Selection,
    dataset: DatasetInfo | None,
    plan: Plan,
    command: list[str],
    workers: int = 1,
    examples: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """This process, the chief of so many `workers`, and its run, as the manifest keeps them.

    `examples` is what was measured of the training rows. `environ` is the process's own unless given.
    """
    environ = os.environ if environ is None else environ
    host, user = provenance.host(), provenance.user()
    own = own_code(config)
    used = software(environ)
    described: dict[str, Any] = {
        "trainbox": used["trainbox"],
        "runtime": provenance.runtime(environ),
        "image": used["image"],
        "command": command,
        "seed": config.seed,
        "config": {name: getattr(config, name) for name in options()},
        "sources": dict(sources),
        "code": {option: reference.sha256 for option, reference in own.items()},
        "files": {option: str(reference.path) for option, reference in own.items()},
        "plan": _plan(plan),
        "data": dataclasses.asdict(dataset) if dataset else None,
        "examples": dict(examples or {}),
        "devices": dataclasses.asdict(selection),
        "workers": workers if workers > 1 else None,
        "host": host,
        "user": user,
        "python": used["python"],
        "packages": used["packages"],
        "environment": provenance.variables(environ),
        "starts": [{"time": _now(), "host": host["name"], "user": user, "command": command}],
    }
    return {name: value for name, value in described.items() if value is not None and value != {}}


def software(environ: Mapping[str, str]) -> dict[str, Any]:
    """The sections of this process's manifest that tell what it is made of."""
    source = {"version": trainbox.__version__, "revision": provenance.revision(environ)}
    return {
        "trainbox": {name: value for name, value in source.items() if value},
        "image": provenance.image(environ),
        "python": sys.version.split()[0],
        "packages": provenance.packages(),
    }


def write(run_dir: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a start; the starts of a manifest that is there already come before it.

    Raises:
        RunFailedError: the manifest that is there is damaged, or the disk is full.
        UsageError: the folder cannot be written.
    """
    manifest = json.loads(_dump(manifest))
    if (run_dir / FILE).exists():
        earlier = read(run_dir)
        replaced = {
            name: value for name, value in earlier.items() if name not in _OF_ONE_START and value != manifest.get(name)
        }
        start = manifest["starts"][0] | ({"replaced": replaced} if replaced else {})
        manifest["starts"] = [*earlier.get("starts", []), start]
    atomic_write(run_dir / FILE, _dump(manifest))


def read(run_dir: Path) -> dict[str, Any]:
    """The manifest of a run.

    Raises:
        UsageError: there is none.
        RunFailedError: it is damaged or cannot be read.
    """
    path = run_dir / FILE
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"no {FILE} in {run_dir}: it is not the folder of a run that has started") from error
    except OSError as error:
        raise RunFailedError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RunFailedError(_damaged(path, f"not JSON: {error}")) from error
    if not isinstance(manifest, dict):
        raise RunFailedError(_damaged(path, "not a JSON object"))
    return manifest


def finish(run_dir: Path, result: Mapping[str, Any]) -> None:
    """Add the run's `result` at the end of its manifest, and before it the seal over all that it says.

    Raises:
        RunFailedError, UsageError: as `read` and `write`.
    """
    manifest = read(run_dir)
    for name in (seal.KEY, "result"):
        manifest.pop(name, None)
    kept = {"result": json.loads(_dump(result))}
    atomic_write(run_dir / FILE, _dump(manifest | {seal.KEY: seal.seal(manifest | kept)} | kept))


def own_code(config: RunConfig) -> dict[str, plugin.Reference]:
    """The user's own code, by the option that names it. Raises UsageError if it cannot be read."""
    named = {"--model": config.model, "--callbacks": config.callbacks}
    return {option: plugin.parse(text, option=option) for option, text in named.items() if text and ".py:" in text}


def _plan(plan: Plan) -> dict[str, int]:
    derived = {"rows": plan.rows, "steps_per_epoch": plan.steps_per_epoch, "total_steps": plan.total_steps}
    return dataclasses.asdict(plan) | derived


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _damaged(path: Path, reason: str) -> str:
    return f"{path} is damaged ({reason}): delete it to go on without its record"


def _dump(manifest: Mapping[str, Any]) -> bytes:
    return (json.dumps(_strict(manifest), indent=2, allow_nan=False) + "\n").encode()


def _strict(value: Any) -> Any:
    """The same in strict JSON's types: paths as text, null for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "item"):  # a scalar of NumPy
        return _strict(value.item())
    return str(value) if isinstance(value, Path) else value
