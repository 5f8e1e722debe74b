"""Whether ptxas and libdevice are there, with which XLA compiles for GPUs, and no XLA_FLAGS points past them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, ok, warning
from trainbox.values import shown

LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
PTXAS = "bin/ptxas"
_FLAG = re.compile(r"--xla_gpu_cuda_data_dir=(\S+)")
_AGAIN = "pip install --force-reinstall --no-deps nvidia-cuda-nvcc-cu12"


def examine(case: Case) -> list[Finding]:
    """In the folder that XLA_FLAGS names, else in the wheel beside TensorFlow."""
    named = _FLAG.findall(case.environ.get("XLA_FLAGS", ""))
    if not case.built_for_gpus or case.site is None or not (named or (case.site / "nvidia").is_dir()):
        return ok("no GPU wheels here: nothing is compiled for GPUs")
    wheel = case.site / "nvidia" / "cuda_nvcc"
    # The last of several is the one that counts.
    folder = Path(named[-1]) if named else wheel
    remedy = f"unset XLA_FLAGS (now {shown(case.environ['XLA_FLAGS'])})" if named else _AGAIN
    found = []
    if not os.access(folder / LIBDEVICE, os.R_OK):
        what = "cannot be read" if (folder / LIBDEVICE).exists() else "does not exist"
        found.append(failure(f"libdevice: {folder / LIBDEVICE} {what}, without which XLA compiles nothing", remedy))
    ptxas = folder / PTXAS
    if not ptxas.exists():
        # XLA then lets the driver compile.
        found.append(warning(f"ptxas: {ptxas} does not exist, so that the driver has to compile", remedy))
    elif not os.access(ptxas, os.X_OK):
        found.append(failure(f"ptxas: uid {os.getuid()} may not execute {ptxas}", f"chmod a+rx {ptxas}"))
    return found or ok(f"ptxas and libdevice are in {folder}")
