"""The CPU that a process runs on, and the oldest one that a run may be asked to compute like (no TensorFlow).

The bits of float32 on a CPU hang on the instructions that oneDNN picks; docs/bits.md has what was tried.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError, UsageError

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
# What oneDNN and TensorFlow look for, oldest first, as the kernel names it.
_DECIDING = (
    *("sse4_1", "avx", "fma", "avx2", "avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl", "avx512_vnni"),
    *("avx_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a CPU must have, by the kernel's names, and the name that oneDNN has for it."""

    flags: tuple[str, ...]
    onednn: str


BASELINES: Mapping[str, Baseline] = {
    "avx2": Baseline(flags=("avx2", "fma"), onednn="AVX2"),
    "avx512": Baseline(
        flags=("avx2", "fma", "avx512f", "avx512cd", "avx512dq", "avx512bw", "avx512vl"), onednn="AVX512_CORE"
    ),
}


def refuse(config: RunConfig, selection: Selection, *, cpuinfo: Path = _CPUINFO) -> None:
    """Refuse a baseline that the devices of a run cannot keep.

    Raises:
        UsageError: the run takes GPUs, on which a baseline of the CPU says nothing.
        DevicesError: this CPU lacks an instruction set of the baseline.
    """
    baseline = BASELINES.get(config.cpu_baseline)
    if baseline is None:
        return
    said = f"--cpu-baseline {config.cpu_baseline}"
    if selection.kind == "gpu":
        raise UsageError(f"{said} is for training on the CPU, and this run takes GPUs; drop it, or say --device cpu")
    missing = [flag for flag in baseline.flags if flag not in _flags(cpuinfo)]
    if missing:
        raise DevicesError(
            f"{said} needs a CPU with {', '.join(baseline.flags)}; {name(cpuinfo)} lacks {', '.join(missing)}: "
            "use an older baseline, or another machine"
        )


def name(cpuinfo: Path = _CPUINFO) -> str:
    """The processor as the kernel names it, or its architecture."""
    return _field("model name", cpuinfo) or platform.machine()


def instruction_sets(cpuinfo: Path = _CPUINFO) -> str:
    """The instruction sets that can decide bits, in one line; empty where the kernel names none of them."""
    found = _flags(cpuinfo)
    return " ".join(flag for flag in _DECIDING if flag in found)


def caches(folder: Path = _CACHES) -> str:
    """The data caches of the first CPU in one line, such as `48K 2048K 266240K`; empty where the kernel tells none."""
    found = []
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() != "Instruction":
                found.append((index / "size").read_text().strip())
        except OSError:
            continue
    return " ".join(found)


def _flags(cpuinfo: Path) -> set[str]:
    return set(_field("flags", cpuinfo).split())


def _field(key: str, cpuinfo: Path) -> str:
    """The first CPU's value of a field; empty if there is none."""
    try:
        found = re.search(rf"^{key}\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""
