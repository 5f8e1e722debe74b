"""From a selection of devices to the `tf.distribute.Strategy` that mirrors the model over them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import UsageError
from trainbox.reduction import pairwise


def build(config: RunConfig, selection: Selection) -> tf.distribute.Strategy:
    """A `MirroredStrategy` over the selected devices; one device is a mirrored strategy of one.

    Only one strategy per process: a later one would share its collective keys. `runtime.configure` has checked that the
    devices exist, because a mirrored strategy over a missing one hangs in its first step.

    Raises:
        UsageError: `--all-reduce nccl` on the CPU, for which NCCL has no kernel.
    """
    kind = selection.kind.upper()
    devices = [f"{kind}:{number}" for number in range(selection.replicas)]
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_cross_device_ops(config, selection))


def _cross_device_ops(config: RunConfig, selection: Selection) -> Any:
    if config.all_reduce == "nccl" and selection.kind == "cpu":
        raise UsageError("--all-reduce nccl needs GPUs; on the CPU use hierarchical or one-device")
    if config.reproducible:
        # A ring adds in an order of its own. Here the partial sums meet on one device, are added by the one tree and
        # are sent back, so that the total does not depend on the number of replicas.
        return tf.distribute.ReductionToOneDevice(accumulation_fn=pairwise)
    # On the CPU TensorFlow would choose a ring, which packs all gradients into one buffer and unpacks them again.
    automatic = "one-device" if selection.kind == "cpu" else "auto"
    return {
        "auto": lambda: None,
        "nccl": tf.distribute.NcclAllReduce,
        "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
        "one-device": tf.distribute.ReductionToOneDevice,
    }[automatic if config.all_reduce == "auto" else config.all_reduce]()
