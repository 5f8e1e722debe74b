"""Where a process comes from and what it runs on: source, image, runtime, host, user, packages (no TensorFlow)."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import pwd
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainbox import processor

# What the image says of itself, written when it is built.
_IMAGE_RECORD = Path("usr/share/trainbox/image.json")

_MATTERING = re.compile(
    "(CUDA|DNNL|KERAS|NCCL|NPY|OMP|ONEDNN|TENSORFLOW|TF|TFDS|XLA)_.*|GLIBC_TUNABLES|LD_LIBRARY_PATH"
    "|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32_OVERRIDE)"
    "|SLURM_(JOB_ID|JOB_NODELIST|PROCID|NTASKS|RESTART_COUNT)"
)
# Terraform too begins its variables with TF_, and keeps secrets in them.
_SECRET = re.compile("TF_VAR_|TF_CLI_|TOKEN|SECRET|PASSWORD|CREDENTIAL|_KEY")


def revision(
    environ: Mapping[str, str], *, root: Path = Path("/"), package: Path = Path(__file__).parent
) -> str | None:
    """The git revision of trainbox's source, with "-dirty" for a checkout that was changed; None where nobody knows it.

    Said by `TRAINBOX_REVISION`, by the image's record, or by git where `package` lies in a checkout of trainbox.
    """
    said = environ.get("TRAINBOX_REVISION") or _image_record(root).get("revision")
    if said and said != "unknown":
        return str(said)
    checkout = package.parents[1]
    # Only trainbox's own checkout: a virtualenv may lie inside the user's.
    if package != checkout / "src" / "trainbox" or not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = commit and _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def image(environ: Mapping[str, str], *, root: Path = Path("/")) -> dict[str, str]:
    """What is known of the container image, empty outside of one: variant, digest of its requirements, name, digest.

    An image cannot know its own digest, so the last two are there if whoever started it said so
    (`TRAINBOX_IMAGE`, `TRAINBOX_IMAGE_DIGEST`; Apptainer says the file's path).
    """
    record = {name: str(value) for name, value in _image_record(root).items() if name != "revision"}
    told = {
        "name": environ.get("TRAINBOX_IMAGE") or _apptainer(environ),
        "digest": environ.get("TRAINBOX_IMAGE_DIGEST"),
    }
    return record | {name: value for name, value in told.items() if value}


def runtime(environ: Mapping[str, str], *, root: Path = Path("/")) -> str:
    """What trainbox runs in: docker, podman, apptainer, container (another one), venv or python."""
    in_image = (root / _IMAGE_RECORD).exists()
    if sys.prefix != sys.base_prefix and not in_image:
        return "venv"
    if _apptainer(environ):
        return "apptainer"
    for kind, mark in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (root / mark).exists():
            return kind
    return "container" if in_image else "python"


def host() -> dict[str, Any]:
    """This machine: name, platform, processor, what of it can decide bits, and the CPUs that this process may use."""
    return {
        "name": socket.gethostname(),
        "platform": platform.platform(),
        "processor": processor.name(),
        "instruction_sets": processor.instruction_sets(),
        "caches": processor.caches(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def user() -> str:
    """The user's name, or number where it has none: containers run as any uid."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def packages() -> dict[str, str]:
    """Version of every installed distribution by its normalized name."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a removal that was interrupted leaves a folder without metadata
            # The first on the path is the one that is imported.
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    return dict(sorted(found.items()))


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that TensorFlow, its libraries, NumPy, glibc and Slurm read or set; none that may hold a secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if _MATTERING.fullmatch(name) and not _SECRET.search(name)
    }


def _image_record(root: Path) -> dict[str, Any]:
    try:
        record = json.loads((root / _IMAGE_RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _apptainer(environ: Mapping[str, str]) -> str | None:
    return environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER")


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        output = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return output.strip()
