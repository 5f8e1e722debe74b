"""What a container and a job scheduler have to do with the GPUs: for words to the user, never for numbers.

Docker numbers the GPUs that it hands in from 0, and Slurm's variables name GPUs as the node numbers them: neither is
ever taken for an index of CUDA's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainbox.devices.nvml import LIBRARY, Inventory
from trainbox.values import shown

Container = Literal["docker", "podman", "apptainer", "kubernetes"]

# How each is told to hand in the driver and the GPUs.
REQUESTS: dict[Container, str] = {
    "docker": "start it with --gpus all (Compose: compose.gpu.yaml)",
    "podman": "start it with --device nvidia.com/gpu=all",
    "apptainer": "start it with --nv",
    "kubernetes": "ask for nvidia.com/gpu in the limits of the pod",
}
# What tells of a job's GPUs, in the order in which it is believed.
SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", *SLURM)

_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where a process runs: in which container, if any, and whether in the cgroup of a Slurm job."""

    container: Container | None = None
    slurm: bool = False


def look(environ: Mapping[str, str], *, root: Path = Path("/")) -> Surroundings:
    """The surroundings of this process, from the marks that runtimes leave under `root` and in its environment."""
    container: Container | None = None
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ or (root / ".singularity.d").exists():
        container = "apptainer"
    elif "KUBERNETES_SERVICE_HOST" in environ:
        container = "kubernetes"
    elif (root / "run/.containerenv").exists():
        container = "podman"
    elif (root / ".dockerenv").exists():
        container = "docker"
    try:
        cgroup = (root / "proc/self/cgroup").read_text(errors="replace")
    except OSError:
        cgroup = ""
    return Surroundings(container=container, slurm="slurm" in cgroup)


def absence(inventory: Inventory, environ: Mapping[str, str], around: Surroundings) -> str:
    """Why there is no GPU, and what to do; empty where there is one."""
    if inventory.absence is None:
        return ""
    if inventory.absence == "driver does not answer":
        return f"the NVIDIA driver does not answer ({inventory.detail}): nvidia-smi should say so too; reload or reboot"
    if inventory.absence == "library does not load":
        return f"the NVIDIA driver's {LIBRARY} does not load ({inventory.detail}): install the driver again"
    wish = environ.get("NVIDIA_VISIBLE_DEVICES")
    if around.container and wish == "none":
        return "NVIDIA_VISIBLE_DEVICES=none hands the driver into the container and no GPU: set it to all, or name GPUs"
    if inventory.absence == "no library":
        return _no_library(wish, around)
    if inventory.absence == "driver not loaded":
        return f"{LIBRARY} is here and the driver not loaded: this is a login node, or load it (modprobe nvidia)"
    return "the NVIDIA driver is loaded and lists no GPU"


def _no_library(wish: str | None, around: Surroundings) -> str:
    if around.container is None:
        return f"no NVIDIA driver is installed ({LIBRARY} was not found)"
    line = f"no NVIDIA driver in this container ({LIBRARY} was not found): {REQUESTS[around.container]}"
    if around.container == "docker" and wish in ("", "void"):
        line += f"; NVIDIA_VISIBLE_DEVICES={shown(wish)} keeps NVIDIA's runtime out of it"
    return line


def notes(environ: Mapping[str, str], around: Surroundings, *, gpus: int) -> list[str]:
    """What the environment says of the `gpus` that are here, one line each; what is wrong is in `warnings`."""
    said = []
    wish = environ.get("NVIDIA_VISIBLE_DEVICES")
    if wish and gpus and around.container == "apptainer" and wish != "all":
        said.append(f"NVIDIA_VISIBLE_DEVICES={shown(wish)} has no effect on apptainer --nv, which hands in every GPU")
    elif wish and gpus and wish not in ("all", "none", "void"):
        said.append(
            f"NVIDIA_VISIBLE_DEVICES={shown(wish)} names GPUs as the host numbers them; in the container their indices "
            "restart at 0"
        )
    given = [f"{name}={shown(environ[name])}" for name in SLURM if name in environ]
    if given:
        said.append(f"Slurm gave {', '.join(given)}: GPUs as the node numbers them, which are no indices of CUDA's")
    return said


def warnings(environ: Mapping[str, str], around: Surroundings, *, usable: int) -> list[str]:
    """What is likely wrong where a process may use `usable` GPUs: another's, one line each."""
    count = slurm_count(environ)
    pass_on = "pass on the job's CUDA_VISIBLE_DEVICES" + (
        " as APPTAINERENV_CUDA_VISIBLE_DEVICES" if around.container == "apptainer" else ""
    )
    if count is not None and count < usable:
        return [f"Slurm gave {count} GPU{'s' * (count != 1)} and this process may use {usable}: {pass_on}"]
    lost = not any(name.startswith(("SLURM_", "CUDA_VISIBLE_DEVICES")) for name in environ)
    if usable and lost and around.slurm:
        return [f"this is a job of Slurm's whose variables did not get here (--cleanenv, --containall): {pass_on}"]
    if usable > 1 and lost and around.container == "apptainer":
        return [
            "no CUDA_VISIBLE_DEVICES and no variable of Slurm's in this container, which has every GPU of the host: "
            f"if it was started with --cleanenv or --containall in a job, {pass_on}"
        ]
    return []


def slurm_count(environ: Mapping[str, str]) -> int | None:
    """How many GPUs Slurm gave on this node; None where it does not say or it cannot be read. Never raises."""
    for name in SLURM:
        text = environ.get(name, "").strip()
        if not text:
            continue
        if name == "SLURM_GPUS_ON_NODE":
            number = text.rpartition(":")[2]
            return int(number) if _RANGE.fullmatch(number) and "-" not in number else None
        spans = [_RANGE.fullmatch(entry.strip()) for entry in text.split(",")]
        if not all(spans):
            return None
        ends = [(int(span[1]), int(span[2] or span[1])) for span in spans if span]
        return sum(max(0, last - first + 1) for first, last in ends)
    return None
