"""What of the user's Python and of the host's libraries reaches into this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, note, ok, warning
from trainbox.gpu_libraries import SONAMES
from trainbox.values import shown

# Where Apptainer's --nv puts the driver's own.
_DRIVERS = "/.singularity.d/libs"


def examine(case: Case) -> list[Finding]:
    """Modules from outside of this installation, and library folders with CUDA libraries of their own."""
    return [*_variables(case), *_modules(case), *_libraries(case)] or ok("nothing foreign reaches in")


def _variables(case: Case) -> Iterator[Finding]:
    for name in ("PYTHONPATH", "PYTHONHOME"):
        value = case.environ.get(name)
        if value and not case.isolated:
            yield warning(f"{name}={shown(value)}: modules from there win over the installed ones", f"unset {name}")
    base = case.environ.get("PYTHONUSERBASE")
    for place in dict.fromkeys(path for path in case.paths if _of_user(path, base)):
        yield warning(
            f"packages of the user's own are used: {place}"
            + (f" (PYTHONUSERBASE={shown(base)})" if base and place.startswith(base) else ""),
            "export PYTHONNOUSERSITE=1",
        )
    if preload := case.environ.get("LD_PRELOAD"):
        yield note(f"LD_PRELOAD={shown(preload)} is loaded into every process", "unset LD_PRELOAD")


def _of_user(path: str, base: str | None) -> bool:
    return "/.local/lib/python" in path or bool(base and path.startswith(base.rstrip("/") + "/"))


def _modules(case: Case) -> Iterator[Finding]:
    for name, origin in case.origins.items():
        # One installation may have two folders of packages: lib and lib64.
        own = case.site is None or any(map(origin.is_relative_to, (case.site, case.prefix)))
        if name != "tensorflow" and not own:
            yield warning(
                f"{name} comes from {origin.parent}, and TensorFlow from {case.site}",
                "install both into one environment; unset PYTHONPATH",
            )


def _libraries(case: Case) -> Iterator[Finding]:
    for text in case.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if not text or text.rstrip("/") == _DRIVERS:
            continue
        held = [soname for soname in SONAMES.values() if (Path(text) / soname).exists()]
        if held and (case.site is None or not Path(text).is_relative_to(case.site)):
            yield warning(
                f"LD_LIBRARY_PATH has {text} with {', '.join(held)}, which win over those of the wheels",
                "unset LD_LIBRARY_PATH (module unload cuda, where a module has set it)",
            )
