"""`CUDA_VISIBLE_DEVICES`, read as the driver reads it.

The rules, from the CUDA programming guide and from what frameworks found the driver to do:
- not set: every GPU; set and empty: none;
- entries are numbers or UUIDs, whole or cut short; the first entry that names no GPU ends the list;
- a number is read as C's strtoul reads it: blanks before it and anything after its digits are skipped;
- the first entry decides the kind (number, GPU-…, MIG-…), and an entry of another kind ends the list;
- a GPU that is named twice makes the whole list empty;
- one process gets at most one MIG instance, and then no whole GPU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.values import shown

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]+)")
_BLANKS = " \t\n\v\f\r"


@dataclass(frozen=True, kw_only=True)
class VisibleDevice:
    """One device as this process sees it: a whole GPU, or the one MIG instance that a process can have.

    `identifier` names it in `CUDA_VISIBLE_DEVICES` whatever else is in there.
    """

    identifier: str
    gpu: Gpu
    instance: MigInstance | None = None

    @property
    def name(self) -> str:
        return self.instance.name if self.instance else self.gpu.name


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """The visible devices in CUDA's order, and why the others are not.

    `cause` says what hides devices: the entry that ended the list, or the value as a whole; empty when nothing was cut
    off. `remark` says what is odd about a value that was read to its end.
    """

    devices: tuple[VisibleDevice, ...]
    cause: str = ""
    remark: str = ""


def read_visible_devices(value: str | None, gpus: Sequence[Gpu], *, order: str = "PCI_BUS_ID") -> Visibility:
    """The devices that a process with this `CUDA_VISIBLE_DEVICES` has, None meaning that it is not set.

    `order` is the process's `CUDA_DEVICE_ORDER`. In any order but PCI's only CUDA knows which GPU a number means, so
    numbers are then kept as identifiers and only the count is certain. Never raises, whatever the value.
    """
    if value is None:
        devices = tuple(_device(gpu, order) for gpu in gpus if gpu.mig != ())
        cause = "" if len(devices) == len(gpus) else "a GPU in MIG mode without a MIG instance computes nothing"
        return _within_one_mig_instance(Visibility(devices=devices, cause=cause))
    entries = value.split(",")
    found: list[VisibleDevice] = []
    cause = ""
    for entry in entries:
        device = (
            _resolve(entry, gpus, order) if _kind(entry) == _kind(entries[0]) else "is of another kind than the first"
        )
        if isinstance(device, str):
            cause = f"its entry {shown(entry)} {device}"
            break
        if any(device.identifier == other.identifier for other in found):
            found, cause = [], f"its entry {shown(entry)} names a GPU for the second time, which makes CUDA show none"
            break
        found.append(device)
    if value.strip(_BLANKS) == "":
        cause = "it is set and empty, which is not the same as not set"
    remark = "it holds a carriage return, as files with Windows line ends have" if "\r" in value else ""
    return _within_one_mig_instance(Visibility(devices=tuple(found), cause=cause, remark=remark))


def named(value: str, gpus: Sequence[Gpu]) -> dict[int, str]:
    """The GPUs (their `index`) that the entries of a list name, each with its first entry; also after its end."""
    found: dict[int, str] = {}
    for entry in value.split(","):
        device = _resolve(entry, gpus, "PCI_BUS_ID")
        if isinstance(device, VisibleDevice):
            found.setdefault(device.gpu.index, entry)
    return found


def _kind(entry: str) -> str:
    entry = entry.strip(_BLANKS)
    return entry[:4] if entry.startswith(("GPU-", "MIG-")) else "number"


def _device(gpu: Gpu, order: str) -> VisibleDevice:
    """The device that CUDA shows for a GPU named as a whole: in MIG mode, its first instance."""
    if gpu.mig:
        return VisibleDevice(identifier=gpu.mig[0].uuid, gpu=gpu, instance=gpu.mig[0])
    by_uuid = order == "PCI_BUS_ID" and gpu.uuid
    return VisibleDevice(identifier=gpu.uuid if by_uuid else str(gpu.index), gpu=gpu)


def _resolve(entry: str, gpus: Sequence[Gpu], order: str) -> VisibleDevice | str:
    """The device that an entry names, or what is wrong with the entry."""
    kind = _kind(entry)
    if kind == "MIG-":
        return _mig_instance(entry.strip(_BLANKS), gpus)
    gpu = _by_uuid(entry.strip(_BLANKS), gpus) if kind == "GPU-" else _by_number(entry, gpus)
    if isinstance(gpu, str):
        return gpu
    if gpu.mig == ():
        return "is a GPU in MIG mode that has no MIG instance"
    # A UUID stays one in any order.
    return _device(gpu, order if kind == "number" else "PCI_BUS_ID")


def _by_uuid(prefix: str, gpus: Sequence[Gpu]) -> Gpu | str:
    matches = [gpu for gpu in gpus if gpu.uuid.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    return f"fits {len(matches)} GPUs" if matches else "is the UUID of no GPU here"


def _by_number(entry: str, gpus: Sequence[Gpu]) -> Gpu | str:
    match = _NUMBER.match(entry)
    if not match:
        return _not_a_number(entry)
    sign, digits = match.groups()
    # Compared as text first: Python refuses to convert thousands of digits.
    if sign == "-" and digits != "0":
        return "is negative, which hides all that follow"
    if len(digits) > 9 or int(digits) >= len(gpus):
        numbers = f"0 to {len(gpus) - 1}" if len(gpus) > 1 else "0 and no other"
        return f"is out of range: numbers here are {numbers} (a container's restart at 0: use UUIDs, or unset it)"
    return gpus[int(digits)]


def _not_a_number(entry: str) -> str:
    bare = entry.strip(_BLANKS)
    if not bare:
        return "is empty"
    if bare == "NoDevFiles":
        return "is Slurm's word for a job without GPUs: ask for them with --gres=gpu:N or --gpus=N"
    if any(quote in bare for quote in "\"'"):
        return "holds quote characters, which docker's --env-file keeps: write the value without them"
    return "is neither a number nor a UUID"


def _mig_instance(entry: str, gpus: Sequence[Gpu]) -> VisibleDevice | str:
    matches = [
        VisibleDevice(identifier=instance.uuid, gpu=gpu, instance=instance)
        for gpu in gpus
        for instance in gpu.mig or ()
        if instance.uuid.startswith(entry)
        or entry == f"MIG-{gpu.uuid}/{instance.gpu_instance}/{instance.compute_instance}"
    ]
    if len(matches) == 1:
        return matches[0]
    return f"fits {len(matches)} MIG instances" if matches else "is no MIG instance here"


def _within_one_mig_instance(visibility: Visibility) -> Visibility:
    first = next((device for device in visibility.devices if device.instance), None)
    if first is None or len(visibility.devices) == 1:
        return visibility
    return replace(
        visibility, devices=(first,), cause="one process can use one MIG instance and no other device beside it"
    )
