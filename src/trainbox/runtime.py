"""The one place that configures TensorFlow: devices, memory, threads, seeds, determinism and precision."""

from __future__ import annotations

import absl.logging
import keras
import tensorflow as tf

from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DevicesError

REPRODUCIBLE_THREADS = 2


def configure(config: RunConfig, selection: Selection) -> None:
    """Set TensorFlow up for a run; nothing may have touched it before in this process.

    Raises:
        DevicesError: TensorFlow does not have the selected devices.
    """
    # Warnings of libraries about their own code are not for the user.
    absl.logging.set_verbosity(absl.logging.ERROR)
    threads = config.threads or (REPRODUCIBLE_THREADS if config.reproducible else 0)
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    if selection.kind == "gpu":
        _check_gpus(selection)
    else:
        _split_cpu(selection.replicas)
    keras.utils.set_random_seed(config.seed)
    if config.reproducible:
        tf.config.experimental.enable_op_determinism()
    keras.config.set_dtype_policy({"float32": "float32"}.get(config.precision, f"mixed_{config.precision}"))


def keep_order_of_sums(*, shards: int, reproducible: bool) -> None:
    """Let TensorFlow rewrite additions only where a step adds no shards; to be called before anything is traced.

    Its arithmetic optimizer turns a + b + c into one operation that adds in an order of its own, and not always in the
    same one. A single shard has no such sum, and is about a tenth faster with the optimizer on.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": shards == 1 and not reproducible})


def _check_gpus(selection: Selection) -> None:
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) < selection.replicas:
        raise DevicesError(
            f"TensorFlow can use {len(gpus)} of the {selection.replicas} selected GPUs ({', '.join(selection.names)}); "
            "its lines above name the library it could not load; --device cpu trains on the CPU"
        )
    # On all of them or none: TensorFlow refuses a mixture. Without it one process takes all memory of every GPU.
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)


def _split_cpu(replicas: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
