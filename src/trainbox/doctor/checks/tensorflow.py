"""Whether TensorFlow lists the GPUs that this process may use; it is loaded in a process of its own."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.checks import libraries
from trainbox.doctor.finding import Finding, failure, ok, warning


def examine(case: Case) -> list[Finding]:
    """Not asked where it is known already that it lists none, nor where there is nothing to compare."""
    may_use = case.listing.usable
    if not may_use:
        return ok("no GPU that this process may use: nothing to compare")
    if not case.built_for_gpus:
        return [
            failure(
                f"this process may use {gpus(may_use)} and TensorFlow lists 0: "
                f"{libraries.distribution(case)} is built without CUDA",
                libraries.GPU_IMAGE,
            )
        ]
    if case.compare is None:
        return ok("not compared")
    compared = case.compare()
    if compared.count is None:
        return [warning(f"TensorFlow did not list its GPUs: {compared.difference}", "trainbox devices --tensorflow")]
    if compared.difference:
        return [failure(compared.difference, "trainbox devices --tensorflow shows what TensorFlow itself says")]
    return ok(f"TensorFlow lists {gpus(compared.count)}, as the driver does")


def gpus(count: int) -> str:
    """A number of GPUs in words."""
    return f"{count} GPU{'s' * (count != 1)}"
