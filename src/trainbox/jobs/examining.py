"""The job of `trainbox doctor`: what the machine, the environment and the words are, gathered for the checks."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox import devices, doctor, gpu_libraries, limits, provenance, sources
from trainbox.config import RunConfig
from trainbox.devices.health import examine_health
from trainbox.doctor import Case, Checked, Compared, words

# Loading TensorFlow takes 3 s, on a cold network file system minutes.
_PATIENCE_SECONDS = 180.0
_OWN_MODULES = ("tensorflow", "keras", "numpy", "tensorflow_datasets")


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What was found, in lines for a person and as data for JSON, and whether any of it is a failure."""

    checked: list[Checked]

    @property
    def failed(self) -> bool:
        return any(check.severity == "failure" for check in self.checked)

    @property
    def values(self) -> dict[str, Any]:
        return words.as_data(self.checked)

    def lines(self, *, verbose: bool, colours: bool) -> list[str]:
        """See `doctor.words.lines`."""
        return words.lines(self.checked, verbose=verbose, colours=colours)


def examine(config: RunConfig, *, applied: Mapping[str, str], dotenv: Path, tensorflow: bool = True) -> Examined:
    """Make every check for a run of `config` in this process; with `tensorflow` it is loaded in another one.

    `applied` are the variables that `dotenv`, the file, has given to this process. With `--device cpu` the driver is
    left alone, in case it hangs.
    """
    case = _case(config, applied=applied, dotenv=dotenv, tensorflow=tensorflow)
    return Examined(checked=doctor.run(case))


def _case(config: RunConfig, *, applied: Mapping[str, str], dotenv: Path, tensorflow: bool) -> Case:
    around = devices.look(os.environ)
    asked = config.device != "cpu"
    inventory = devices.take_inventory() if asked else devices.Inventory(absence="no library")
    health, barriers = examine_health() if asked else ((), ())
    return Case(
        environ=dict(os.environ),
        inventory=inventory,
        listing=devices.describe(inventory, environ=os.environ, around=around),
        around=around,
        health=health,
        barriers=barriers,
        cuda=functools.cache(functools.partial(doctor.probe, dict(os.environ))),
        built_for_gpus=gpu_libraries.built_for_gpus(),
        libraries=gpu_libraries.examine,
        compare=_compare if tensorflow else None,
        site=gpu_libraries.site(),
        packages=provenance.packages(),
        python=(sys.version_info.major, sys.version_info.minor),
        prefix=Path(sys.prefix),
        paths=tuple(sys.path),
        origins=_origins(),
        isolated=bool(sys.flags.ignore_environment),
        dotenv=sources.read_dotenv(dotenv),
        applied=applied,
        limits=limits.read(os.environ),
        shared_memory_bytes=_size(Path("/dev/shm")),
        device=config.device,
        threads=config.threads,
        data_dir=config.data_dir,
        output_dir=config.output_dir,
    )


def _origins() -> dict[str, Path]:
    """The files that these modules would be loaded from; none is loaded."""
    specs = {name: importlib.util.find_spec(name) for name in _OWN_MODULES}
    return {name: Path(spec.origin) for name, spec in specs.items() if spec and spec.origin}


def _size(folder: Path) -> int | None:
    """How much a file system holds, in bytes; None where it is not there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_blocks * found.f_frsize


def _compare(seconds: float = _PATIENCE_SECONDS) -> Compared:
    """What `trainbox devices --tensorflow` says, in a process of its own, lest it hang or crash."""
    isolated = ["-I"] if sys.flags.isolated else []
    command = [sys.executable, *isolated, "-m", "trainbox", "devices", "--tensorflow", "--json"]
    try:
        child = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
        told = json.loads(child.stdout)["tensorflow"]
    except subprocess.TimeoutExpired:
        return Compared(difference=f"no answer in {seconds:g} s")
    except (ValueError, KeyError):
        said = child.stderr.decode(errors="replace").strip().splitlines()
        return Compared(difference=f"it ended with {child.returncode}: {said[-1] if said else 'without a word'}")
    return Compared(count=len(told["gpus"]), difference=told["difference"])
