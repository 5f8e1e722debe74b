"""What a `.env` file in the working folder sets for this process, and what it sets in vain."""

from __future__ import annotations

import re

from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, note, ok, warning

_TOLD = re.compile("(TRAINBOX|CUDA|TF|TFDS|XLA|NCCL|KERAS|NVIDIA)_.*")
# Read before trainbox can set them: by the linker, by Python, by the container's runtime.
_TOO_LATE = (
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHONPATH",
    "PYTHONHOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)


def examine(case: Case) -> list[Finding]:
    """Names only: values may be secret."""
    if not case.dotenv:
        return ok("no .env in this folder")
    late = [name for name in _TOO_LATE if name in case.applied]
    told = [name for name in sorted(case.applied) if _TOLD.fullmatch(name) and name not in late]
    beaten = [name for name in sorted(case.dotenv) if _TOLD.fullmatch(name) and name not in case.applied]
    found = []
    if told:
        found.append(note(f".env sets {', '.join(told)}", "mv .env .env.off, or drop the line, if that is not meant"))
    if beaten:
        found.append(note(f".env has {', '.join(beaten)}, and the environment wins"))
    if late:
        found.append(
            warning(
                f".env sets {', '.join(late)}, which is read before trainbox starts and has no effect here",
                f"export {late[0]}=… in the shell, or docker run -e {late[0]}=…",
            )
        )
    return found or ok(".env sets nothing that matters here")
