"""Which workers a run has, as the site tells it: in words, in TF_CONFIG or by Slurm (no TensorFlow)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainbox.config import RunConfig
from trainbox.errors import UsageError

# Below Linux's own range for outgoing connections, which begins at 32768.
_FIRST_PORT, _PORTS = 20_000, 12_000
_ADDRESS = re.compile(r"(?P<host>[^\s:/]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
_MOST = 4096  # workers that a list may expand to


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The workers of a run by their addresses, host:port, and the number of this one; number 0 is the chief.

    `source` is what told it, for the user. `siblings` are the tasks that Slurm runs on this node.
    """

    workers: tuple[str, ...]
    index: int
    source: str
    siblings: int = 1

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.workers)

    @property
    def notice(self) -> str:
        """One line for the user."""
        return (
            f"{self.size}, this is number {self.index} ({self.workers[self.index]}), the chief is {self.workers[0]}, "
            f"from {self.source}"
        )


def find(config: RunConfig, environ: Mapping[str, str]) -> Cluster | None:
    """The workers of this run, or None where it is alone: `--workers` wins over TF_CONFIG, and that over Slurm.

    Raises:
        UsageError: what tells of workers cannot be understood, or `--strategy multi-worker` and nothing does.
    """
    cluster: Cluster | None
    if config.workers is not None:
        cluster = _from_words(config.workers, config.worker_index)
    elif environ.get("TF_CONFIG", "").strip():
        cluster = _from_tf_config(environ["TF_CONFIG"])
    else:
        cluster = _from_slurm(environ)
    if config.strategy not in ("auto", "multi-worker"):
        if cluster and cluster.size > 1:
            raise UsageError(
                f"--strategy {config.strategy} is of one process, and {cluster.source} tells of {cluster.size} "
                "workers; use --strategy auto, or start one task"
            )
        return None
    if cluster is None and config.strategy == "multi-worker":
        raise UsageError(
            "--strategy multi-worker needs the workers: start with srun, set TF_CONFIG, or give --workers host:port,… "
            "and --worker-index"
        )
    return cluster if cluster and cluster.size > 1 else None


def _from_words(words: str, index: int | None) -> Cluster:
    if index is None:
        raise UsageError("--workers needs --worker-index, the number of this worker in the list, from 0")
    addresses = [address.strip() for address in words.split(",") if address.strip()]
    return _checked(addresses, index, source="--workers")


def _checked(addresses: list[str], index: Any, *, source: str) -> Cluster:
    for address in addresses:
        match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
        if match is None or not 0 < int(match["port"]) < 65536:
            raise UsageError(f"{source}: {address!r} is not host:port; write it like node1:12345")
    double = [address for number, address in enumerate(addresses) if address in addresses[:number]]
    if double:
        raise UsageError(f"{source}: {double[0]} is there twice; every worker needs a host and port of its own")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(addresses):
        last = len(addresses) - 1
        raise UsageError(f"{source}: this is worker {index!r}, and the list has 0 to {last}; correct the index")
    return Cluster(workers=tuple(addresses), index=index, source=source)


def _from_tf_config(text: str) -> Cluster | None:
    """Of Kubernetes' TFJob and the like: a chief, if there is one, is the first of the workers."""
    try:
        told = json.loads(text)
    except ValueError as error:
        raise UsageError(f"TF_CONFIG is not JSON ({error}); correct it, or unset it to train alone") from error
    members, task = (told.get("cluster") or {}, told.get("task") or {}) if isinstance(told, dict) else (None, None)
    if not isinstance(members, dict) or not isinstance(task, dict):
        raise UsageError("TF_CONFIG needs the objects cluster and task; correct it, or unset it to train alone")
    if not members:
        return None
    kind = task.get("type")
    if other := sorted(set(members) - {"chief", "master", "worker", "evaluator"}):
        raise UsageError(f"TF_CONFIG: cluster has {other[0]!r}, and trainbox knows workers and a chief; leave it out")
    if kind not in ("chief", "master", "worker"):
        raise UsageError(f"TF_CONFIG: task has the type {kind!r}, and trainbox knows worker and chief; correct it")
    chiefs = [*members.get("chief", []), *members.get("master", [])]
    index = task.get("index")
    if kind == "worker" and isinstance(index, int):
        index += len(chiefs)
    return _checked([*chiefs, *members.get("worker", [])], index, source="TF_CONFIG")


def _from_slurm(environ: Mapping[str, str]) -> Cluster | None:
    """Of a step that `srun` started with several tasks; the script of a batch job itself is one task."""
    tasks = environ.get("SLURM_STEP_NUM_TASKS", environ.get("SLURM_NTASKS", "1"))
    if "SLURM_PROCID" not in environ or "SLURM_STEP_NODELIST" not in environ or tasks == "1":
        return None
    if environ.get("SLURM_STEP_ID", "0") in ("batch", "4294967291"):
        return None
    try:
        hosts = expand(environ["SLURM_STEP_NODELIST"])
        per_node = _tasks_per_node(environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", "1")))
        index = int(environ["SLURM_PROCID"])
        first = _first_port(environ)
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"Slurm's variables of this step cannot be understood ({error}); give --workers and --worker-index"
        ) from error
    if len(per_node) != len(hosts) or str(sum(per_node)) != tasks:
        raise UsageError(
            f"Slurm tells of {tasks} tasks on {environ['SLURM_STEP_NODELIST']} as "
            f"{environ.get('SLURM_STEP_TASKS_PER_NODE', 'one a node')}, which does not fit; give --workers"
        )
    addresses = [f"{host}:{first + n}" for host, count in zip(hosts, per_node, strict=True) for n in range(count)]
    cluster = _checked(addresses, index, source="Slurm")
    mine = cluster.workers[index].rpartition(":")[0]
    siblings = sum(address.rpartition(":")[0] == mine for address in addresses)
    return Cluster(workers=cluster.workers, index=index, source="Slurm", siblings=siblings)


def _first_port(environ: Mapping[str, str]) -> int:
    """One that Slurm has reserved, else of the job's number, so that jobs on one node do not meet.

    A requeued job has other ports than before, because those may be held for a while yet.
    """
    if reserved := environ.get("SLURM_STEP_RESV_PORTS"):
        return int(reserved.partition("-")[0].partition(",")[0])
    job = int(environ.get("SLURM_JOB_ID", "0")) * 64 + int(environ.get("SLURM_RESTART_COUNT", "0")) * 16
    return _FIRST_PORT + job % _PORTS


def _tasks_per_node(words: str) -> list[int]:
    """`2(x3),1` is [2, 2, 2, 1]."""
    counts: list[int] = []
    for word in words.split(","):
        count, _, times = word.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or 1)
    return counts


def expand(names: str) -> list[str]:
    """The hosts of Slurm's `n[1-3,07-09],gpu-a[1-2]-ib,login`, in order. Raises ValueError if it is no such list."""
    hosts = [host for word in _words(names) for host in _expanded(word)]
    if not hosts:
        raise ValueError(f"no host in {names!r}")
    return hosts


def _words(names: str) -> list[str]:
    """Cut at the commas that are not in brackets."""
    depth, words = 0, [""]
    for letter in names:
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"brackets in {names!r}")
        if letter == "," and not depth:
            words.append("")
        else:
            words[-1] += letter
    if depth:
        raise ValueError(f"brackets in {names!r}")
    return [word for word in words if word]


def _expanded(word: str) -> list[str]:
    begin, bracket, rest = word.partition("[")
    if not bracket:
        return [word]
    inside, _, end = rest.partition("]")
    numbers: list[str] = []
    for part in inside.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part!r} in {word!r}")
        top = int(last) if dash else int(first)
        if top - int(first) >= _MOST:
            raise ValueError(f"{part!r} in {word!r} is too many")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), top + 1)]
    return (
        [begin + number + tail for number in numbers for tail in _expanded(end)]
        if end
        else [begin + n for n in numbers]
    )
