"""In which container this process runs, and whether the GPUs of the host were handed into it."""

from __future__ import annotations

from trainbox.devices.surroundings import REQUESTS
from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok, warning
from trainbox.values import shown


def examine(case: Case) -> list[Finding]:
    """The meaning of NVIDIA_VISIBLE_DEVICES, and GPUs that the host has and the container has not."""
    container = case.around.container
    if container is None:
        return ok("no container")
    wish = case.environ.get("NVIDIA_VISIBLE_DEVICES")
    if case.inventory.gpus or case.inventory.closed:
        told = [line for line in case.listing.notes if line.startswith("NVIDIA_VISIBLE_DEVICES")]
        return [note(line) for line in told] or ok(f"{container}, with {len(case.listing.rows)} of the host's GPUs")
    remedy = f"docker run --gpus all … ({container}: {REQUESTS[container]})"
    if container == "docker":
        remedy = "docker run --gpus all … (compose: COMPOSE_FILE=compose.yaml:compose.gpu.yaml)"
    if container != "apptainer" and wish in ("none", "void", ""):
        return [_wished_away(wish, f"{remedy}, and take NVIDIA_VISIBLE_DEVICES={wish} away")]
    if not case.gpus_are_expected or not _left_out(case):
        return ok(f"{container}, without GPUs")
    if container == "apptainer":
        remedy = "apptainer exec --nv …"
    return [failure(f"the host has NVIDIA GPUs, and this {container} container was started without them", remedy)]


def _wished_away(wish: str, remedy: str) -> Finding:
    if wish == "none":
        return warning("NVIDIA_VISIBLE_DEVICES=none hands the driver's libraries into the container and no GPU", remedy)
    return warning(
        f"NVIDIA_VISIBLE_DEVICES={shown(wish)} keeps NVIDIA's runtime out of the container: no libcuda and no GPU",
        remedy,
    )


def _left_out(case: Case) -> bool:
    """The host's kernel shows its driver or its GPUs, and the container lacks device nodes or library."""
    host = (case.root / "proc/driver/nvidia").exists() or bool(case.hardware)
    nodes = list((case.root / "dev").glob("nvidia[0-9]*"))
    return host and (not nodes or case.inventory.absence == "no library")
