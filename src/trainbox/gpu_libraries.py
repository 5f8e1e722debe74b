"""Which GPU libraries TensorFlow would open, where they lie and why one does not load (no TensorFlow here, no GPU).

TensorFlow opens them by name while it looks for devices, and if one of seven is missing it goes on without any GPU.
What is found here is what it finds: the process's own libraries first, then `LD_LIBRARY_PATH`, the wheels beside
TensorFlow, and the linker's cache.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trainbox.values import shown

# The names that TensorFlow 2.21 asks for, and those without which it uses no GPU. NCCL is asked for by the second GPU,
# CUPTI by the profiler.
SONAMES = {
    "cudart": "libcudart.so.12",
    "cublas": "libcublas.so.12",
    "cublasLt": "libcublasLt.so.12",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.11",
    "cusolver": "libcusolver.so.11",
    "cusparse": "libcusparse.so.12",
    "nccl": "libnccl.so.2",
    "cupti": "libcupti.so.12",
}
DRIVER = "libcuda.so.1"
FOR_ANY_GPU = ("cudart", "cublas", "cublasLt", "cudnn", "cufft", "cusolver", "cusparse")
FOR_SEVERAL_GPUS = (*FOR_ANY_GPU, "nccl")

_NOT_FOUND = "cannot open shared object file: No such file"
_LINK_MAP = 2  # RTLD_DI_LINKMAP of dlfcn.h


@dataclass(frozen=True, kw_only=True)
class Library:
    """One GPU library: `path` is the file that was opened or could not be, None where there is none of that name.

    `error` is the dynamic linker's own message, empty when the library loads.
    """

    name: str
    soname: str
    path: str | None
    error: str


class _LinkMap(ctypes.Structure):
    """The public head of the linker's record of a library."""

    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def examine() -> list[Library]:
    """Open each library as TensorFlow would, in the order of `SONAMES`; what was opened stays so. Never raises."""
    root = site()
    return [_examine(name, soname, root) for name, soname in SONAMES.items()]


def built_for_gpus() -> bool:
    """Whether the installed TensorFlow was compiled with CUDA, from its record of the build; it is not imported.

    True where nothing is known, so that TensorFlow itself is asked.
    """
    root = site()
    try:
        record = (root or Path()) / "tensorflow" / "python" / "platform" / "build_info.py"
        tree = ast.parse(record.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return True
    pairs = (node.elts for node in ast.walk(tree) if isinstance(node, ast.Tuple) and len(node.elts) == 2)
    return not any(ast.unparse(key) == "'is_cuda_build'" and ast.unparse(value) == "False" for key, value in pairs)


def problem(*, several: bool = False) -> str:
    """Why TensorFlow can use no GPU, or not `several` together: one line that names each library; empty if it can."""
    if not built_for_gpus():
        return (
            f"{_distribution()} is built without CUDA; install trainbox with its extra gpu into an environment of its "
            "own, or take the GPU image"
        )
    wanted = FOR_SEVERAL_GPUS if several else FOR_ANY_GPU
    driver = _examine("cuda", DRIVER, None)
    failed = [one for one in [driver, *examine()] if one.error and one.name in (driver.name, *wanted)]
    missing = [library.soname for library in failed if library.path is None and _NOT_FOUND in library.error]
    told = [f"not found: {', '.join(missing)}"] if missing else []
    told += [f"{one.soname} does not load: {one.error}" for one in failed if one.soname not in missing]
    if driver.soname in missing:
        told.append(f"{DRIVER} is the driver's, which a container gets with NVIDIA_DRIVER_CAPABILITIES=compute,utility")
    if failed and (folders := os.environ.get("LD_LIBRARY_PATH")):
        told.append(f"LD_LIBRARY_PATH is {shown(folders)}")
    return "; ".join(told)


def site() -> Path | None:
    """The folder that TensorFlow is installed in, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("tensorflow")
    return Path(spec.origin).parents[1] if spec and spec.origin else None


def _distribution() -> str:
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "TensorFlow"


def _examine(name: str, soname: str, root: Path | None) -> Library:
    loaded, _ = _open(soname, os.RTLD_NOLOAD)
    if loaded is not None:
        return Library(name=name, soname=soname, path=_origin(loaded), error="")
    path = next(_candidates(soname, root), None)
    loaded, error = _open(path or soname)
    if loaded is not None:
        path = _origin(loaded) or path
    return Library(name=name, soname=soname, path=path, error=error)


def _candidates(soname: str, root: Path | None) -> Iterator[str]:
    """The files of that name in the folders that come before the linker's cache."""
    folders = [Path(folder or ".") for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    if root is not None:
        folders += sorted((root / "nvidia").glob("*/lib"))
    for folder in folders:
        if (folder / soname).exists():
            yield str(folder / soname)


def _open(name: str, flags: int = 0) -> tuple[ctypes.CDLL | None, str]:
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOW | flags), ""
    except OSError as error:
        return None, str(error)


def _origin(library: ctypes.CDLL) -> str | None:
    """The file that a library was loaded from."""
    record = ctypes.POINTER(_LinkMap)()
    dlinfo = ctypes.CDLL(None).dlinfo
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    if dlinfo(library._handle, _LINK_MAP, ctypes.byref(record)) or not record:
        return None
    return os.fsdecode(record.contents.name or b"") or None
