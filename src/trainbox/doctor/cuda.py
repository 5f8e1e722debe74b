"""The driver's CUDA library, tried in a process of its own: a broken one can hang or crash whoever calls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What is known is said at once, since the next call may be the last.
_PROGRAM = """
import ctypes, json
def say(**known):
    print(json.dumps(known), flush=True)
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    say(error=str(error))
    raise SystemExit
with open("/proc/self/maps") as maps:
    say(path=next((line.split(None, 5)[5].strip() for line in maps if "libcuda.so" in line), None))
say(symbol=hasattr(library, "cuInit"))
if hasattr(library, "cuInit"):
    say(began=True)
    say(result=library.cuInit(0))
"""


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """What became of `libcuda.so.1`.

    `path` is the file that was loaded, `error` the linker's message where none was; `result` is what cuInit answered,
    None where it did not, and `end` says how the process ended that called it, if not by itself.
    """

    path: str | None = None
    error: str = ""
    symbol: bool = False
    began: bool = False
    result: int | None = None
    end: str = ""


def probe(environ: Mapping[str, str], *, seconds: float = 60.0) -> Cuda:
    """Load the library as a run would and call cuInit; waits `seconds` for it. Never raises for what it does.

    Without `CUDA_VISIBLE_DEVICES`, whose own check says what it hides: cuInit finds no device where it hides all.
    """
    clean = {name: value for name, value in environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            env=clean,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        return Cuda(**_known(error.stdout or b""), end=f"did not answer in {seconds:g} s")
    except OSError as error:
        return Cuda(end=f"could not be tried: {error}")
    return Cuda(**_known(child.stdout), end=_end(child.returncode))


def _known(said: bytes) -> dict[str, Any]:
    """All that was said; a line that its writer died in counts for nothing."""
    known: dict[str, Any] = {}
    for line in said.splitlines(keepends=True):
        if line.startswith(b"{") and line.endswith(b"}\n"):
            known |= json.loads(line)
    return known


def _end(code: int) -> str:
    if code < 0:
        return f"died of {signal.Signals(-code).name}"
    return f"ended with {code}" if code else ""
