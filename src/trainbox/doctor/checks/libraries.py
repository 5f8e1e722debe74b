"""Whether TensorFlow was built for GPUs and can open each library that it needs for them."""

from __future__ import annotations

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok
from trainbox.gpu_libraries import FOR_ANY_GPU, FOR_SEVERAL_GPUS, Library
from trainbox.values import shown

_INSTALL = "pip install --require-hashes -r requirements/gpu.txt"
GPU_IMAGE = f"use the GPU image (docker build -t trainbox .), or in an environment of its own: {_INSTALL}"


def examine(case: Case) -> list[Finding]:
    """A build for CPUs is a fault only where this process may use a GPU."""
    gpus = len(case.usable)
    if not case.built_for_gpus:
        if gpus or case.device == "gpu":
            return [failure(f"{distribution(case)} is built without CUDA and uses no GPU", GPU_IMAGE)]
        return ok("this TensorFlow is built without CUDA, and there is no GPU that this process may use")
    if case.site is None:
        return [failure("TensorFlow is not installed", _INSTALL)]
    # A build for GPUs whose wheels are not there is no fault where nobody uses a GPU.
    libraries = case.libraries()
    needed = FOR_ANY_GPU if gpus == 1 else FOR_SEVERAL_GPUS
    found = [_judged(one, needed=one.name in needed, case=case) for one in libraries if one.error]
    return [one for one in found if one] or ok(f"{len(libraries)} GPU libraries load")


def distribution(case: Case) -> str:
    """The TensorFlow that is installed, as "tensorflow-cpu 2.21.0"."""
    found = (name for name in ("tensorflow-cpu", "tensorflow") if name in case.packages)
    return next((f"{name} {case.packages[name]}" for name in found), "this TensorFlow")


def _judged(library: Library, *, needed: bool, case: Case) -> Finding | None:
    if library.path is None:
        message = f"{library.soname} is not found"
    else:
        message = f"{library.path} does not load: {library.error}"
    folders = case.environ.get("LD_LIBRARY_PATH")
    message += f" (LD_LIBRARY_PATH={shown(folders)})" if folders else ""
    if not needed or not case.usable:
        use = {"nccl": "several GPUs", "cupti": "the profiler"}.get(library.name, "GPUs")
        return note(f"{message}; only {use} would need it")
    shadowed = library.path is not None and case.site is not None and not library.path.startswith(str(case.site))
    return failure(message, f"unset LD_LIBRARY_PATH, or {GPU_IMAGE}" if shadowed else GPU_IMAGE)
