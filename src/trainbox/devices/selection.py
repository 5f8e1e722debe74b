"""Which of the visible devices a run takes, from its words and its environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trainbox.config import RunConfig
from trainbox.devices.gpu import Gpu
from trainbox.devices.nvml import discover
from trainbox.devices.visibility import Visibility, VisibleDevice, read_visible_devices
from trainbox.errors import DevicesError, UsageError
from trainbox.values import shown

_TO_THE_CPU = "--device cpu trains on the CPU"


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The devices of one process: one replica each.

    `visible_devices` is what `CUDA_VISIBLE_DEVICES` has to be for TensorFlow to see these devices and no other, in this
    order: UUIDs, or empty for none. `names` has one entry a replica. `notice` is one line for the user.
    """

    kind: Literal["gpu", "cpu"]
    replicas: int
    visible_devices: str | None
    names: tuple[str, ...]
    notice: str
    driver: str = ""


def choose(config: RunConfig, *, environ: Mapping[str, str]) -> Selection:
    """`select` among the GPUs of this machine; with `--device cpu` the driver is left alone, in case it is broken.

    Raises:
        DevicesError, UsageError: as `select` and `discover`.
    """
    return select(config, gpus=[] if config.device == "cpu" else discover(), environ=environ)


def select(config: RunConfig, *, gpus: Sequence[Gpu], environ: Mapping[str, str]) -> Selection:
    """The devices to train on, always a subset of what `CUDA_VISIBLE_DEVICES` allows.

    Words that exclude each other were refused when the settings were resolved.

    Raises:
        UsageError: a `--devices` that cannot be read.
        DevicesError: devices that were asked for are not there, or the machine's GPUs are all hidden or one is faulty;
            never a silent run on the CPU.
    """
    if config.device == "cpu":
        return _cpu(1 if config.strategy == "one" else config.logical_devices or 1, "training on the CPU")
    asked = _asked(config)
    if not gpus:
        if asked:
            raise DevicesError(f"{asked}: no GPU on this machine, no NVIDIA driver answers; {_TO_THE_CPU}")
        return _cpu(1, "no GPU on this machine: training on the CPU")
    value = environ.get("CUDA_VISIBLE_DEVICES")
    visibility = read_visible_devices(value, gpus, order=environ.get("CUDA_DEVICE_ORDER") or "PCI_BUS_ID")
    if not visibility.devices:
        raise _all_hidden(value, visibility, gpus)
    chosen = _chosen(config, visibility.devices, gpus, value)
    for device in chosen:
        if device.gpu.fault:
            raise DevicesError(
                f"GPU {device.gpu.index} of this machine cannot be used ({device.gpu.fault}): reset it or reboot, or "
                f"choose others by --devices; {_TO_THE_CPU}"
            )
    return Selection(
        kind="gpu",
        replicas=len(chosen),
        visible_devices=",".join(device.identifier for device in chosen),
        names=tuple(device.name for device in chosen),
        notice=_notice(chosen, visibility, value, gpus),
        driver=chosen[0].gpu.driver,
    )


def _asked(config: RunConfig) -> str:
    """The words that ask for GPUs, as they were said; empty when none do."""
    if config.gpus is not None:
        return f"--gpus {config.gpus}"
    if config.devices is not None:
        return f"--devices {config.devices}"
    return "--device gpu" if config.device == "gpu" else ""


def _cpu(replicas: int, notice: str) -> Selection:
    if replicas > 1:
        notice += f", split into {replicas} logical devices"
    return Selection(kind="cpu", replicas=replicas, visible_devices="", names=("CPU",) * replicas, notice=notice)


def _chosen(
    config: RunConfig, visible: tuple[VisibleDevice, ...], gpus: Sequence[Gpu], value: str | None
) -> tuple[VisibleDevice, ...]:
    if config.devices is not None:
        return _listed(config.devices, visible, gpus, value)
    if config.gpus is None:
        return visible[:1] if config.strategy == "one" else visible
    if config.gpus > len(visible):
        raise DevicesError(f"--gpus {config.gpus}: {_inventory(visible, gpus, value)}")
    return visible[: config.gpus]


def _listed(
    devices: str, visible: tuple[VisibleDevice, ...], gpus: Sequence[Gpu], value: str | None
) -> tuple[VisibleDevice, ...]:
    """The devices of a `--devices` list: numbers as this process sees them, or UUIDs, whole or cut short."""
    chosen: list[VisibleDevice] = []
    for entry in devices.split(","):
        matches = _matching(entry.strip(), devices, visible)
        if len(matches) != 1:
            what = f"fits {len(matches)} GPUs" if matches else "is not among the GPUs that this process sees"
            raise DevicesError(
                f"--devices {devices}: {shown(entry.strip())} {what}; {_inventory(visible, gpus, value)}"
            )
        if matches[0] in chosen:
            raise UsageError(f"--devices {devices}: {shown(entry.strip())} names a GPU that is named before")
        chosen += matches
    return tuple(chosen)


def _matching(entry: str, devices: str, visible: tuple[VisibleDevice, ...]) -> list[VisibleDevice]:
    if entry.isascii() and entry.isdigit():
        number = int(entry) if len(entry) < 10 else len(visible)
        return list(visible[number : number + 1])
    if not entry.startswith(("GPU-", "MIG-")):
        raise UsageError(
            f"--devices {shown(devices)}: {shown(entry)} is neither a number nor a UUID; write 0,2 or GPU-…,GPU-…"
        )
    return [replace(device, identifier=_uuid(device)) for device in visible if _uuid(device).startswith(entry)]


def _uuid(device: VisibleDevice) -> str:
    return device.instance.uuid if device.instance else device.gpu.uuid


def _all_hidden(value: str | None, visibility: Visibility, gpus: Sequence[Gpu]) -> DevicesError:
    machine = "the GPU" if len(gpus) == 1 else f"all {len(gpus)} GPUs"
    if value is None:
        return DevicesError(f"{machine} of this machine cannot be used: {visibility.cause}; {_TO_THE_CPU}")
    return DevicesError(
        f"CUDA_VISIBLE_DEVICES={shown(value)} hides {machine} of this machine: {visibility.cause}; {_TO_THE_CPU}"
    )


def _inventory(visible: tuple[VisibleDevice, ...], gpus: Sequence[Gpu], value: str | None) -> str:
    """What there is to choose from, on one line."""
    listed = ", ".join(f"{number} {_label(device)}" for number, device in enumerate(visible))
    line = f"this process sees {len(visible)} of {len(gpus)} GPUs: {listed}"
    return line if value is None else f"{line} (CUDA_VISIBLE_DEVICES={shown(value)})"


def _label(device: VisibleDevice) -> str:
    return f"{device.name} ({device.gpu.fault or _uuid(device)[:12]})"


def _notice(chosen: tuple[VisibleDevice, ...], visibility: Visibility, value: str | None, gpus: Sequence[Gpu]) -> str:
    count = f"{len(chosen)} GPU" + "s" * (len(chosen) > 1)
    if len(chosen) < len(gpus):
        count += f" of {len(gpus)}"
    notice = f"training on {count}: {', '.join(_label(device) for device in chosen)}"
    odd = visibility.cause or visibility.remark
    if odd:
        notice += f"; note: CUDA_VISIBLE_DEVICES{'' if value is None else '=' + shown(value)}: {odd}"
    return notice
