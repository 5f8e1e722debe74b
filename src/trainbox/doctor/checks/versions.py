"""The installed versions against those that this release was tested with."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.compatibility import table
from trainbox.doctor.finding import Finding, failure, ok, warning


def examine(case: Case) -> list[Finding]:
    """A Python that is out of range, another version than the locked one, two TensorFlows in one folder."""
    rules = table()
    variant = "gpu" if case.built_for_gpus else "cpu"
    again = f"pip install --require-hashes -r requirements/{variant}.txt"
    found = []
    first, last = tuple(rules["python"]["first"]), tuple(rules["python"]["last"])
    if not first <= case.python <= last:
        found.append(
            warning(
                f"Python {_dotted(case.python)} is not one of {_dotted(first)} to {_dotted(last)}",
                f"python{_dotted(last)} -m venv .venv",
            )
        )
    for kind, names in rules["one_of"].items():
        there = [f"{name} {case.packages[name]}" for name in names if name in case.packages]
        if len(there) > 1:
            remove = " ".join(name for name in names if name in case.packages)
            found.append(
                failure(
                    f"two distributions of {kind} in one place: {' and '.join(there)}",
                    f"pip uninstall -y {remove} && {again}",
                )
            )
    for name, why in rules["unwanted"].items():
        if name in case.packages:
            found.append(
                failure(f"{name} {case.packages[name]} is installed: {why}", f"pip uninstall -y {name} && {again}")
            )
    for name, locked in {**rules["locked"], **rules["locked_gpu"]}.items():
        here = case.packages.get(name)
        if here is not None and here != locked:
            found.append(warning(f"{name} {here} is not the {locked} that this release was tested with", again))
    return found or ok("all as locked")


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
