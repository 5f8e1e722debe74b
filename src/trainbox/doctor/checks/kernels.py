"""Whether TensorFlow has machine code for each GPU, and if not, whether what it compiles at its first start is kept."""

from __future__ import annotations

import os
from pathlib import Path

from trainbox.devices import Gpu
from trainbox.doctor.case import Case
from trainbox.doctor.checks.driver import cuda_version, lags
from trainbox.doctor.compatibility import table
from trainbox.doctor.finding import Finding, failure, note, ok, warning
from trainbox.values import shown

_LEAST_CACHE_BYTES = 2**30


def examine(case: Case) -> list[Finding]:
    """The compute capability of every GPU that this process may use against the kernels of the wheels."""
    known = [gpu for gpu in case.usable if gpu.compute_capability is not None]
    if not known:
        return ok("no GPU whose compute capability is known")
    too_old = [gpu for gpu in known if _kind(gpu) == "none"]
    compiled = [gpu for gpu in known if _kind(gpu) == "ptx"]
    found = [
        failure(
            f"GPU {gpu.index} {gpu.name} has compute capability {_capability(gpu)}, and TensorFlow's kernels begin at "
            f"{'.'.join(map(str, table()['kernels']['binary'][0]))}",
            "leave it out with --devices, or train with --device cpu",
        )
        for gpu in too_old
    ]
    if compiled:
        found += _first_start(case, compiled)
    return found or ok("TensorFlow has machine code for every GPU here")


def _kind(gpu: Gpu) -> str:
    """Where the code for this GPU comes from: "binary", "ptx", or "none"."""
    major, minor = gpu.compute_capability or (0, 0)
    kernels = table()["kernels"]
    if any(major == first and minor >= second for first, second in kernels["binary"]):
        return "binary"
    return "ptx" if (major, minor) >= tuple(kernels["ptx"]) else "none"


def _capability(gpu: Gpu) -> str:
    return ".".join(map(str, gpu.compute_capability or ()))


def _first_start(case: Case, gpus: list[Gpu]) -> list[Finding]:
    """The driver compiles every kernel for a newer GPU once, for minutes, if it may keep them."""
    names = ", ".join(dict.fromkeys(f"{gpu.name} ({_capability(gpu)})" for gpu in gpus))
    found = []
    if newer := lags(case):
        found.append(
            warning(
                f"the kernels for {names} are compiled by the driver, and {case.inventory.driver} is older than the "
                f"{newer} of CUDA {cuda_version(case)}: it may refuse them",
                f"update the driver of the host to {newer} or newer",
            )
        )
    if fault := _cache_fault(case):
        message, remedy = fault
        return [*found, warning(f"the kernels for {names} are compiled at every start, for minutes: {message}", remedy)]
    return [
        *found,
        note(f"the kernels for {names} are compiled at the first start, for minutes, and kept in {_folder(case)}"),
    ]


def _folder(case: Case) -> Path:
    """Where a run would keep them: `environment.apply` takes the data folder unless the user has another one."""
    return Path(case.environ.get("CUDA_CACHE_PATH") or case.data_dir / "cuda-cache")


def _cache_fault(case: Case) -> tuple[str, str] | None:
    """What keeps the driver from keeping them, and the remedy."""
    if case.environ.get("CUDA_CACHE_DISABLE", "0") not in ("", "0"):
        return f"CUDA_CACHE_DISABLE={shown(case.environ['CUDA_CACHE_DISABLE'])}", "unset CUDA_CACHE_DISABLE"
    size = case.environ.get("CUDA_CACHE_MAXSIZE", "")
    if size.isascii() and size.isdecimal() and len(size) < 20 and int(size) < _LEAST_CACHE_BYTES:
        return f"CUDA_CACHE_MAXSIZE={size} is less than they take", "export CUDA_CACHE_MAXSIZE=4294967296"
    folder = _folder(case)
    there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK):
        return f"{folder} cannot be written", "export CUDA_CACHE_PATH=FOLDER (one that is kept and can be written)"
    return None
