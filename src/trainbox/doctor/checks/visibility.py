"""What CUDA_VISIBLE_DEVICES and the job scheduler leave of the GPUs."""

from __future__ import annotations

import re

from trainbox.devices import read_visible_devices
from trainbox.doctor.case import Case
from trainbox.doctor.finding import Finding, failure, note, ok, warning
from trainbox.values import shown

NAME = "CUDA_VISIBLE_DEVICES"


def examine(case: Case) -> list[Finding]:
    """None visible is a fault, some hidden is worth knowing; a value that no GPU could be named by is told anyway."""
    value = case.environ.get(NAME)
    present, usable = len(case.inventory.gpus), case.listing.usable
    found = [_closed(case)] if case.inventory.closed else []
    if not present:
        return (found + _without_gpus(value)) or ok("no GPU is listed")
    visibility = read_visible_devices(
        value, case.inventory.gpus, order=case.environ.get("CUDA_DEVICE_ORDER") or "PCI_BUS_ID"
    )
    head = f"{present} GPU{'s' * (present != 1)} present, {len(visibility.devices)} visible"
    given = "" if value is None else f": {NAME}={shown(value)}"
    if not visibility.devices:
        found.append(failure(f"{head}{given}: {visibility.cause}", _remedy(value, visibility.cause)))
    elif visibility.cause and value is not None and "MIG-" not in value:  # MIG has a check of its own
        found.append(warning(f"{head}{given}: {visibility.cause}", _remedy(value, visibility.cause)))
    elif value is not None and len(visibility.devices) < present:
        found.append(note(f"{head}{given}"))
    if visibility.remark:
        found.append(warning(f"{NAME}={shown(value)}: {visibility.remark}", _remedy(value, visibility.remark)))
    found += [warning(line, _pass_on(case)) for line in case.listing.warnings]
    if case.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID") not in ("", "PCI_BUS_ID") and value is not None:
        found.append(
            note(
                "CUDA_DEVICE_ORDER is not PCI_BUS_ID: only CUDA knows which GPU a number means",
                "unset CUDA_DEVICE_ORDER",
            )
        )
    return found or ok(f"{head}; this process may use {usable}")


def _without_gpus(value: str | None) -> list[Finding]:
    """A value that is wrong wherever it is read."""
    text = (value or "").strip()
    if value is None or not ("\r" in value or text == "NoDevFiles" or any(quote in value for quote in "\"'")):
        return []
    visibility = read_visible_devices(value, ())
    odd = (
        visibility.remark
        if "\r" in value and text != "NoDevFiles" and not re.search("[\"']", value)
        else visibility.cause
    )
    return [warning(f"{NAME}={shown(value)}: {odd}", _remedy(value, odd))]


def _closed(case: Case) -> Finding:
    count = case.inventory.closed
    return note(
        f"{count} GPU{'s' * (count != 1)} of this machine may not be opened by this process",
        "ask Slurm for them: --gpus=N; in a container, for their device nodes",
    )


def _pass_on(case: Case) -> str:
    if case.around.container == "apptainer":
        return 'export APPTAINERENV_CUDA_VISIBLE_DEVICES="$CUDA_VISIBLE_DEVICES" (before apptainer, in the job)'
    return "export CUDA_VISIBLE_DEVICES=… (as the job has it)"


def _remedy(value: str | None, cause: str) -> str:
    """The command that gives the GPUs back."""
    if value is None:
        return "sudo nvidia-smi mig -cgi 0 -C"
    if "NoDevFiles" in value:
        return "srun --gres=gpu:1 … or sbatch --gpus=1 …"
    if "quote" in cause or "carriage return" in cause:
        bare = re.sub(r"[\"'\s]", "", value)
        return f"export {NAME}={bare} (in an env file: without quotes, and sed -i 's/\\r$//' FILE)"
    if "out of range" in cause:
        return f"unset {NAME} (indices restart at 0 in a container), or name UUIDs: trainbox devices"
    return f"unset {NAME}, or take what trainbox devices lists"
