"""Whether `libcuda.so.1` is the driver's, and not an empty file or a toolkit's stub."""

from __future__ import annotations

from pathlib import Path

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, ok

NAME = "libcuda.so.1"


def examine(case: Case) -> list[Finding]:
    """Looked at where GPUs are listed or asked for; elsewhere nobody needs it."""
    if not case.inventory.gpus and case.device != "gpu":
        return ok("no GPU is listed: libcuda.so.1 is not needed")
    cuda = case.cuda()
    if cuda.error:
        return [_not_loaded(cuda.error, _hand_in(case))]
    if cuda.path is None and cuda.end:
        return [failure(f"{NAME} {cuda.end} while it was loaded", "install the driver again")]
    folder = Path(cuda.path or NAME).parent
    if folder.name == "stubs":
        return [failure(f"{cuda.path} is the stub of a CUDA toolkit", f"take {folder} out of LD_LIBRARY_PATH")]
    if not cuda.symbol:
        return [failure(f"{cuda.path} has no cuInit: it is not the driver's library", _hand_in(case))]
    return ok(f"{cuda.path or NAME} loads")


def _not_loaded(error: str, remedy: str) -> Finding:
    if "file too short" in error:
        path = error.partition(":")[0]
        return failure(
            f"{path} is an empty or cut file, as a container that was first started without GPUs leaves it",
            f"remove it from the image or from the mount, and {remedy}",
        )
    return failure(f"{NAME} does not load: {error}", remedy)


def _hand_in(case: Case) -> str:
    if case.around.container == "apptainer":
        return "start the container with --nv"
    if case.around.container:
        return "start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return "install the driver's CUDA library (Debian: apt install libcuda1)"
