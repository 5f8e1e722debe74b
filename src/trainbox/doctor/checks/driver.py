"""Whether there is an NVIDIA driver, and one that is new enough for the CUDA of the installed wheels."""

from __future__ import annotations

import re

from trainbox.devices import Inventory
from trainbox.doctor.case import Case
from trainbox.doctor.compatibility import numbers, table
from trainbox.doctor.finding import Finding, failure, note, ok

RUNTIME = "nvidia-cuda-runtime-cu"
_UPDATE = (
    "update the driver of the host (Debian: apt install nvidia-driver; then reboot), or use an image of an older CUDA"
)


def examine(case: Case) -> list[Finding]:
    """Absence, a driver that does not answer, one of another version than its library, and one that is too old."""
    if case.inventory.absence in (None, "no GPU"):
        return [*_mismatch(case), *_too_old(case)] or ok(f"driver {case.inventory.driver or 'of unknown version'}")
    why = case.listing.absence or f"no NVIDIA driver ({case.inventory.absence})"
    if case.inventory.absence in ("driver does not answer", "library does not load"):
        return [
            failure(why, "nvidia-smi; then cat /proc/driver/nvidia/version, and reload the driver or reboot the host")
        ]
    if not case.gpus_are_expected:
        odd = case.hardware or (case.around.container and case.built_for_gpus)
        return [note(why)] if odd else ok(why)
    there = f"; the machine has {_gpus(case.hardware)}" if case.hardware else ""
    return [failure(why + there, _install(case))]


def _install(case: Case) -> str:
    if case.around.container == "apptainer":
        return "apptainer exec --nv … (on a node where nvidia-smi works)"
    if case.around.container:
        return (
            "docker run --gpus all …; on the host nvidia-smi must work, and the NVIDIA Container Toolkit be installed"
        )
    if case.inventory.absence == "driver not loaded":
        return "sudo modprobe nvidia; on a cluster, ask for a GPU node: srun --gpus=1 …"
    return "install the driver (Debian: apt install nvidia-driver), or train with --device cpu"


def _gpus(addresses: list[str]) -> str:
    return f"{len(addresses)} NVIDIA GPU{'s' * (len(addresses) != 1)} ({', '.join(addresses[:8])})"


def _mismatch(case: Case) -> list[Finding]:
    """The kernel's driver and the library tell the same version, unless one was updated and the other is in use."""
    try:
        text = (case.root / "proc/driver/nvidia/version").read_text()
    except OSError:
        return []
    loaded = re.search(r"\b([0-9]+\.[0-9]+(\.[0-9]+)?)\b", text)
    if loaded is None or not case.inventory.driver or loaded[1] == case.inventory.driver:
        return []
    return [
        failure(
            f"the kernel runs driver {loaded[1]} and the library here is of {case.inventory.driver}",
            "reboot the host, so that the driver that was installed last is loaded",
        )
    ]


def cuda_version(case: Case) -> str:
    """The CUDA of the installed wheels, as "12.9"; empty where there is none."""
    found = [version for name, version in case.packages.items() if name.startswith(RUNTIME)]
    return ".".join(found[0].split(".")[:2]) if found else ""


def lags(case: Case) -> str:
    """The driver that came with the CUDA of the wheels, if the one here is older; else empty."""
    full = table()["driver"]["full"].get(cuda_version(case), "")
    return full if full and case.inventory.driver and numbers(case.inventory.driver) < numbers(full) else ""


def _too_old(case: Case) -> list[Finding]:
    inventory: Inventory = case.inventory
    cuda = cuda_version(case)
    least = table()["driver"]["family"].get(cuda.partition(".")[0], "")
    if not least or not numbers(inventory.driver):
        return []
    if numbers(inventory.driver) < numbers(least):
        return [failure(f"driver {inventory.driver} is too old for CUDA {cuda}, which needs {least} or newer", _UPDATE)]
    if full := lags(case):
        return [
            note(
                f"driver {inventory.driver} is older than the {full} that came with CUDA {cuda}: it runs what is "
                "compiled for its GPUs, and may refuse what newer GPUs would have to compile"
            )
        ]
    return []
