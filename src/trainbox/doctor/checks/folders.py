"""Whether the folders that a run writes to can be written, have room, and outlive a container."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok, warning

_ROOM_BYTES = {"output": 2**30, "data": 2**30, "temporary": 256 * 2**20}
# The folders that the image is made for.
_MOUNTS = ("/data", "/output")


def examine(case: Case) -> list[Finding]:
    """Each is tried by really making a file that has no name and is gone at once."""
    found: list[Finding] = []
    for kind, folder in (("output", case.output_dir), ("data", case.data_dir)):
        found += _mount(case, folder) or []
        found += _problem(kind, folder)
    found += _temporary(case)
    home = Path(case.environ.get("HOME") or "/")
    if why := _unwritable(home):
        found.append(
            note(f"HOME {home} cannot be written ({why})", "export HOME=FOLDER, if a library wants to keep a cache")
        )
    return found or ok(f"{case.output_dir}, {case.data_dir}, temporary folder and HOME can be written and have room")


def _problem(kind: str, folder: Path) -> list[Finding]:
    if why := _unwritable(folder):
        message = f"the {kind} folder {folder} cannot be written ({why})"
        if kind == "output":
            return [
                failure(message, "trainbox train --output-dir FOLDER, or mount one of this user: -v FOLDER:/output")
            ]
        return [note(f"{message}: a data set that is prepared is enough", "--data-dir FOLDER to prepare others")]
    return _room(kind, folder)


def _temporary(case: Case) -> list[Finding]:
    """The folder that Python would take; a run without one does not start."""
    candidates = [*(case.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP")), str(case.root / "tmp")]
    folders = [Path(one) for one in candidates if one] + [case.root / "var/tmp", case.root / "usr/tmp"]
    for folder in folders:
        if folder.is_dir() and not _unwritable(folder):
            return _room("temporary", folder)
    return [failure("no temporary folder can be written", "docker run --tmpfs /tmp …, or export TMPDIR=FOLDER")]


def _room(kind: str, folder: Path) -> list[Finding]:
    there = _existing(folder)
    free = os.statvfs(there).f_bavail * os.statvfs(there).f_frsize
    if free >= _ROOM_BYTES[kind]:
        return []
    return [
        warning(
            f"the {kind} folder {folder} has {free / 2**20:.0f} MiB left", f"df -h {there}; make room, or take another"
        )
    ]


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there, in which it would be made."""
    folder = folder.absolute()
    return next(one for one in (folder, *folder.parents) if one.exists())


def _unwritable(folder: Path) -> str:
    """Why nothing can be written there; empty if it can."""
    there = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _mount(case: Case, folder: Path) -> list[Finding]:
    place = str(folder.absolute())
    if not case.around.container or place not in _MOUNTS:
        return []
    try:
        lines = (case.root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    if any(line.split()[4:5] == [place] for line in lines):
        return []
    bind = (
        f'apptainer: --bind "$PWD{place}:{place}"'
        if case.around.container == "apptainer"
        else f'-v "$PWD{place}:{place}"'
    )
    return [warning(f"{place} is not a mount: what is written there is lost with the container", bind)]
