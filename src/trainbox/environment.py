"""What must be set before TensorFlow, Keras and TFDS are imported (no TensorFlow here).

Threads are not set here: `trainbox.runtime` sets them through `tf.config`, which wins over every variable.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from trainbox import gpu_libraries
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError, UsageError
from trainbox.processor import BASELINES

# No such folder can ever exist: Keras finds no keras.json there, can write none, and goes on with its own defaults.
_NO_KERAS_HOME = "/dev/null/keras"

# Each changes what the same words compute, and is nothing that a run's config knows of.
_FOREIGN = ("KERAS_MAX_EPOCHS", "KERAS_MAX_STEPS_PER_EPOCH", "KERAS_NNX_ENABLED", "TF_USE_LEGACY_KERAS")

# Each changes the bits that a CPU computes; a reproducible run has its own values, whatever the shell has.
_DECIDING = re.compile(
    "(DNNL|ONEDNN)_(MAX_CPU_ISA|CPU_ISA_HINTS|DEFAULT_FPMATH_MODE)|TF_(ENABLE_ONEDNN_OPTS|SET_ONEDNN_FPMATH_MODE)"
    "|TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL|TF_USE_DEEP_CONV2D"
)

_CUDA_CACHE_BYTES = 4 * 2**30  # the most that the driver takes; its own default is outgrown by one model on a new GPU


def apply(config: RunConfig, selection: Selection, *, environ: MutableMapping[str, str]) -> list[str]:
    """Make `environ`, the process's own, what this run needs; a user's values stay where no result hangs on them.

    Returns lines for the user: what of theirs was taken away.

    Raises:
        UsageError: there is no writable temporary folder, without which TensorFlow cannot be imported.
        DevicesError: a GPU library of the wheels cannot be loaded.
    """
    _check_temporary_folder()
    for name in _FOREIGN:
        environ.pop(name, None)
    environ["KERAS_BACKEND"] = "tensorflow"
    environ["KERAS_HOME"] = _NO_KERAS_HOME
    environ["TFDS_DATA_DIR"] = str(config.data_dir.absolute())
    _default(environ, "TF_CPP_MIN_LOG_LEVEL", _log_level(config, selection))
    _default(environ, "CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if selection.visible_devices is not None:
        environ["CUDA_VISIBLE_DEVICES"] = selection.visible_devices
    if selection.kind == "gpu":
        _prepare_gpus(config.data_dir.absolute(), environ)
    return _fix_bits(config, environ) if config.reproducible else []


def preload_gpu_libraries(site: Path) -> list[Path]:
    """Load the GPU libraries that TensorFlow 2.21's own search path misses, from the wheels in `site` (site-packages).

    Its RUNPATH names every `nvidia/*/lib` but cusolver's, so as installed it finds no GPU. A library that the process
    has already is found by its name. Returns what was loaded: nothing where the wheels are not installed.

    Raises:
        DevicesError: a library is there and cannot be loaded.
    """
    libraries = sorted((site / "nvidia" / "cusolver" / "lib").glob("libcusolver.so.*"))
    for library in libraries:
        try:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise DevicesError(
                f"cannot load {library}, without which TensorFlow sees no GPU ({error}): install the GPU wheels again, "
                "or train with --device cpu"
            ) from error
    return libraries


def _fix_bits(config: RunConfig, environ: MutableMapping[str, str]) -> list[str]:
    """oneDNN on, which TensorFlow decides by the generation of the CPU, and its instructions those of the baseline."""
    wanted = {"TF_ENABLE_ONEDNN_OPTS": "1"}
    if baseline := BASELINES.get(config.cpu_baseline):
        wanted["ONEDNN_MAX_CPU_ISA"] = baseline.onednn
    dropped = [name for name in sorted(environ) if _DECIDING.fullmatch(name) and environ[name] != wanted.get(name)]
    for name in dropped:
        del environ[name]
    environ.update(wanted)
    given = ", ".join(dropped)
    return [f"environment: {given} ignored: --reproducible and --cpu-baseline decide it"] if dropped else []


def _log_level(config: RunConfig, selection: Selection) -> str:
    """What TensorFlow says: its warnings name the GPU library that is missing, and on the CPU they are noise.

    So is the error that oneDNN has no 16-bit kernels for an older CPU, which computes all the same.
    """
    if selection.kind == "gpu":
        return "1"
    return "2" if config.precision == "float32" else "3"


def _check_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except FileNotFoundError as error:
        raise UsageError(
            "no writable temporary folder, which TensorFlow needs: mount a tmpfs at /tmp, or set TMPDIR"
        ) from error


def _default(environ: MutableMapping[str, str], name: str, value: str) -> None:
    """Set what is not set; empty counts as not set."""
    environ[name] = environ.get(name) or value


def _prepare_gpus(data_dir: Path, environ: MutableMapping[str, str]) -> None:
    if not environ.get("CUDA_CACHE_PATH"):
        # GPUs newer than the wheels compile every kernel at its first use: once for all processes, if it is kept.
        cache = data_dir / "cuda-cache"
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
        if os.access(cache, os.W_OK):
            environ["CUDA_CACHE_PATH"] = str(cache)
            _default(environ, "CUDA_CACHE_MAXSIZE", str(_CUDA_CACHE_BYTES))
    site = gpu_libraries.site()
    if site is not None:
        preload_gpu_libraries(site)
        if flags := _xla_flags(environ.get("XLA_FLAGS", ""), site / "nvidia" / "cuda_nvcc"):
            environ["XLA_FLAGS"] = flags


def _xla_flags(flags: str, compiler: Path) -> str:
    """The user's flags, then the wheels' ptxas and libdevice, over which a /usr/local/cuda in the way would win."""
    a_file_of_flags = bool(flags.strip()) and not flags.lstrip().startswith("-")
    if a_file_of_flags or "--xla_gpu_cuda_data_dir" in flags or not compiler.is_dir():
        return flags
    return f"{flags} --xla_gpu_cuda_data_dir={compiler}".lstrip()
