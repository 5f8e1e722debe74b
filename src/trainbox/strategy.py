"""From a selection of devices to the `tf.distribute.Strategy` that mirrors the model over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as collective

from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import UsageError
from trainbox.reduction import pairwise


def build(config: RunConfig, selection: Selection) -> tf.distribute.Strategy:
    """A `MirroredStrategy` over the selected devices; one device is a mirrored strategy of one.

    Of towers and a split batch, which are no strategies of TensorFlow's, it is the default one: variables of the model
    are then on the first device.

    Only one strategy per process: a later one would share its collective keys. `runtime.configure` has checked that the
    devices exist, because a mirrored strategy over a missing one hangs in its first step.

    Raises:
        UsageError: `--all-reduce nccl` on the CPU, for which NCCL has no kernel.
    """
    if config.strategy in ("towers", "batch-split"):
        return tf.distribute.get_strategy()
    devices = device_names(selection.replicas)
    if config.strategy == "one":
        return tf.distribute.OneDeviceStrategy(devices[0])
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=_cross_device_ops(config, selection))


def device_names(count: int) -> list[str]:
    """The first devices of this process: GPUs, or logical CPUs where TensorFlow sees no GPU."""
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return [f"{kind}:{number}" for number in range(count)]


def build_workers(
    config: RunConfig, selection: Selection, *, addresses: Sequence[str], index: int
) -> tf.distribute.Strategy:
    """A `MultiWorkerMirroredStrategy` over the selected devices of every worker; this is the one of number `index`.

    `addresses` are host:port of each. All workers must build it at about the same time, before anything is computed;
    TensorFlow replaces the handlers of signals.

    Raises:
        UsageError: `--all-reduce` names what does not work between processes.
    """
    kinds = tf.distribute.experimental.CommunicationImplementation
    named = {"auto": kinds.AUTO if selection.kind == "gpu" else kinds.RING, "nccl": kinds.NCCL}
    if config.all_reduce not in named or (config.all_reduce == "nccl" and selection.kind == "cpu"):
        raise UsageError(
            f"--all-reduce {config.all_reduce} does not work between several {selection.kind.upper()} workers; use auto"
        )
    return _Workers(
        cluster_resolver=tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": list(addresses)}), task_type="worker", task_id=index, rpc_layer="grpc"
        ),
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=named[config.all_reduce]),
    )


class _Workers(collective.CollectiveAllReduceStrategy):  # type: ignore[misc]
    """`MultiWorkerMirroredStrategy` over all the devices of a worker, where TensorFlow takes one CPU device alone."""

    def __init__(self, *, cluster_resolver: Any, communication_options: Any) -> None:
        super(collective.CollectiveAllReduceStrategy, self).__init__(
            _EveryDevice(self, cluster_resolver=cluster_resolver, communication_options=communication_options)
        )


class _EveryDevice(collective.CollectiveAllReduceExtended):  # type: ignore[misc]
    # Whether a peer lives is watched by trainbox's own heartbeat, which names host and port, and sooner.
    _enable_check_health = False

    def _initialize_local_devices(self, cluster_resolver: Any, worker_device: str) -> tuple[tuple[str, ...], str]:
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        count = len(
            [device for device in tf.config.list_logical_devices(kind) if _is_local(device.name, worker_device)]
        )
        return tuple(f"{worker_device}/device:{kind}:{number}" for number in range(count)), kind


def _is_local(name: str, worker_device: str) -> bool:
    """Whether a device is of this worker: once they are connected, TensorFlow may list those of all."""
    return not worker_device or name.replace("/replica:0", "").startswith(f"{worker_device}/")


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
