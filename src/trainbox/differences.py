"""In what two manifests differ: apart what can alter a result and what cannot (no TensorFlow)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainbox.seal import UNSEALED, leaves

# Sections and values that say nothing of their own: who started the run, its result, and what stands elsewhere too
# (what words on the batch and the data set come to is in `plan` and `data`).
_LEFT_OUT = re.compile(
    rf"({'|'.join(UNSEALED)}|result|seed|devices\.(notice|visible_devices|replicas)|data\.name"
    r"|config\.(batch_size|batch_size_per_replica|shards|dataset)"
    r"|plan\.(rows|steps_per_epoch|total_steps|epochs))(\..*)?"
)
# Options that name devices and places. Which devices they come to stands in `plan` and `devices`.
WHERE = ("device", "gpus", "devices", "logical_devices", "data_dir", "output_dir", "offline", "progress")
# Options that change what is kept and not what is computed.
_KEPT = (
    "run",
    "checkpoint_epochs",
    "checkpoint_steps",
    "checkpoint_minutes",
    "keep",
    "log_steps",
    "tensorboard",
    "first_step_seconds",
    "workers",
    "worker_index",
    "worker_start_seconds",
    "worker_timeout_seconds",
)
_CANNOT = re.compile(
    rf"config\.({'|'.join(WHERE + _KEPT)})"
    r"|data\.path|files\..*|runtime|host\.(name|platform)|image\.name|fork\.run"
    r"|environment\.(SLURM_.*|TFDS_.*|KERAS_HOME|TF_CPP_.*|CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|CACHE_.*)"
    r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES))"
)
# With --reproducible the number of replicas, of CPUs, and how they share the work and add up do not matter.
_CANNOT_IF_REPRODUCIBLE = (
    "plan.replicas",
    "host.cpus",
    "workers",
    "config.all_reduce",
    "config.strategy",
)

Pair = tuple[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Values that differ, by their path in the manifest; None for what one of the two lacks."""

    can_alter: dict[str, Pair]
    cannot_alter: dict[str, Pair]


def between(a: Mapping[str, Any], b: Mapping[str, Any]) -> Differences:
    """The differences of two manifests, in the order of the first, the second's own values last."""
    first, second = _values(a), _values(b)
    both_reproducible = all(_config(manifest).get("reproducible") for manifest in (a, b))
    can: dict[str, Pair] = {}
    cannot: dict[str, Pair] = {}
    for path in dict.fromkeys([*first, *second]):
        pair = first.get(path), second.get(path)
        if pair[0] == pair[1]:
            continue
        harmless = _CANNOT.fullmatch(path) or (both_reproducible and path in _CANNOT_IF_REPRODUCIBLE)
        (cannot if harmless or _same_code(path, a, b) else can)[path] = pair
    return Differences(can_alter=can, cannot_alter=cannot)


def _values(manifest: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        path: value
        for name, section in manifest.items()
        for path, value in leaves(section, name)
        if not _LEFT_OUT.fullmatch(path)
    }
    if isinstance(names := found.get("devices.names"), list):
        # How many there are is in `plan`.
        found["devices.names"] = ", ".join(dict.fromkeys(map(str, names)))
    return found


def _same_code(path: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether `path` is an option whose two values are one function of one file, named in two ways."""
    name = path.removeprefix("config.")
    option = "--" + name
    digests = [manifest.get("code", {}).get(option) for manifest in (a, b)]
    functions = [str(_config(manifest).get(name)).rpartition(":")[2] for manifest in (a, b)]
    return digests[0] is not None and digests[0] == digests[1] and functions[0] == functions[1]


def _config(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    config: Mapping[str, Any] = manifest.get("config", {})
    return config
