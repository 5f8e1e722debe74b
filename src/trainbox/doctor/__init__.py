"""Small independent checks of what a run stands on (no TensorFlow but in a process of its own)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainbox.doctor.case import Case, Compared
from trainbox.doctor.checks import (
    compiler,
    container,
    cuinit,
    dotenv,
    driver,
    faults,
    folders,
    kernels,
    leaks,
    libcuda,
    libraries,
    limits,
    mig,
    occupants,
    peers,
    shared_memory,
    tensorflow,
    versions,
    visibility,
)
from trainbox.doctor.cuda import Cuda, probe
from trainbox.doctor.finding import SEVERITIES, Finding, Severity

__all__ = ["CHECKS", "Case", "Checked", "Compared", "Cuda", "Finding", "Severity", "probe", "run"]

# What TensorFlow needs first stands first: of several failures the first is often the cause of the others.
CHECKS: dict[str, Callable[[Case], list[Finding]]] = {
    "container": container.examine,
    "driver": driver.examine,
    "visible devices": visibility.examine,
    "MIG": mig.examine,
    "libcuda": libcuda.examine,
    "cuInit": cuinit.examine,
    "GPU libraries": libraries.examine,
    "TensorFlow": tensorflow.examine,
    "compiler": compiler.examine,
    "kernels": kernels.examine,
    "GPU faults": faults.examine,
    "other processes": occupants.examine,
    "shared memory": shared_memory.examine,
    "peer access": peers.examine,
    "limits": limits.examine,
    "folders": folders.examine,
    "foreign packages": leaks.examine,
    ".env": dotenv.examine,
    "versions": versions.examine,
}
# With --device cpu these have nothing to look at.
OF_GPUS = tuple(CHECKS)[: tuple(CHECKS).index("limits")]


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A check by its name, and all that it found, at least one thing."""

    name: str
    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity:
        """That of the worst finding."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index)


def run(case: Case, checks: dict[str, Callable[[Case], list[Finding]]] = CHECKS) -> list[Checked]:
    """Every check on its own: one that fails itself is a finding, and keeps no other from being made."""
    wanted = [name for name in checks if case.device != "cpu" or name not in OF_GPUS]
    return [Checked(name=name, findings=tuple(_made(checks[name], case))) for name in wanted]


def _made(check: Callable[[Case], list[Finding]], case: Case) -> list[Finding]:
    try:
        return check(case)
    except Exception as error:
        message = f"the check itself failed: {type(error).__name__}: {error}"
        return [Finding(severity="warning", message=message, remedy="report it, with trainbox doctor --json")]
