"""The one place that configures TensorFlow: devices, memory, threads, seeds, determinism and precision."""

from __future__ import annotations

import os
from typing import Any

import absl.logging
import keras
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import math_ops

from trainbox import gpu_libraries, limits
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
    _set_threads(config, selection)
    if selection.kind == "gpu":
        _check_gpus(selection)
    else:
        _split_cpu(selection.replicas)
    keras.utils.set_random_seed(config.seed)
    if config.reproducible:
        tf.config.experimental.enable_op_determinism()
        if selection.kind == "cpu":
            sum_bias_gradients()
    if config.cpu_baseline != "native":
        divide_instead_of_approximating()
    keras.config.set_dtype_policy({"float32": "float32"}.get(config.precision, f"mixed_{config.precision}"))


def sum_bias_gradients() -> None:
    """Let the gradient of every bias be a plain sum over all other dimensions.

    oneDNN's graph pass merges TensorFlow's own operation for it into the gradient of a convolution's filter, but only
    where both depend on the same nodes: it did so on the first of two replicas and not on the second, and the merged
    operation adds in another order. There is no switch for this pass alone, and a gradient cannot be registered twice.
    """

    def gradient(operation: Any, received: Any) -> tuple[Any, Any]:
        layout = tf.compat.as_str(operation.get_attr("data_format"))
        channels = 1 if layout == "NCHW" else received.shape.rank - 1
        return received, tf.reduce_sum(received, [i for i in range(received.shape.rank) if i != channels])

    ops.gradient_registry._registry["BiasAdd"]["type"] = gradient


def _set_threads(config: RunConfig, selection: Selection) -> None:
    """As many as were asked for, or as a cgroup's quota or Slurm leaves CPUs, which TensorFlow would not notice.

    Replicas on one CPU share them: two that both cut every operation for all CPUs keep one another waiting, which cost
    a fifth to a third of a step.
    """
    found = limits.read(os.environ)
    limited = found.threads if found.threads < found.schedulable else 0
    default = REPRODUCIBLE_THREADS if config.reproducible else limited
    if selection.kind == "cpu" and selection.replicas > 1 and not config.reproducible:
        default = max(1, found.threads // selection.replicas)
    tf.config.threading.set_intra_op_parallelism_threads(config.threads or default)
    if limited and not config.reproducible:
        # Not one: an operation that waits for another would have the only thread.
        tf.config.threading.set_inter_op_parallelism_threads(max(2, limited))


def divide_instead_of_approximating() -> None:
    """Let 1/x and 1/√x of all Python code, BatchNormalization and gradients included, divide.

    TensorFlow's own kernels begin from the CPU's approximate reciprocals. Each maker of CPUs has others, and the one
    step of Newton's method after it leaves a difference in the last bit; a division is rounded alike everywhere.
    """

    def reciprocal(x: Any, name: str | None = None) -> Any:
        # Not 1/x, which constant folding would turn into TensorFlow's own reciprocal again, in gradients too. The
        # arithmetic optimizer would do the same with roots, and is off where bits are kept.
        kind = tf.convert_to_tensor(x).dtype
        return tf.math.multiply(tf.constant(0.5, kind), tf.math.divide(tf.constant(2, kind), x), name=name)

    def rsqrt(x: Any, name: str | None = None) -> Any:
        return reciprocal(tf.math.sqrt(x), name=name)

    for module in (tf.math, math_ops):
        module.reciprocal, module.rsqrt = reciprocal, rsqrt


def keep_order_of_sums(*, shards: int, reproducible: bool) -> None:
    """Let TensorFlow rewrite additions only where a step adds no shards; to be called before anything is traced.

    Its arithmetic optimizer turns a + b + c into one operation that adds in an order of its own, and not always in the
    same one. A single shard has no such sum, and is about a tenth faster with the optimizer on.
    """
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": shards == 1 and not reproducible})


def gpus() -> list[dict[str, str]]:
    """The GPUs that TensorFlow lists, in its order: `name` and `compute_capability` of each; no memory is taken."""
    found = []
    for gpu in tf.config.list_physical_devices("GPU"):
        details = tf.config.experimental.get_device_details(gpu)
        capability = ".".join(map(str, details.get("compute_capability", ())))
        found.append({"name": details.get("device_name", gpu.name), "compute_capability": capability})
    return found


def why_fewer() -> str:
    """Why TensorFlow lists fewer GPUs than a process may use, in one line."""
    return gpu_libraries.problem() or (
        "all its libraries load, so it leaves them out by itself: the lines above say why (a driver too old, a compute "
        "capability below its kernels', fewer processors than the other GPUs have)"
    )


def _check_gpus(selection: Selection) -> None:
    listed = tf.config.list_physical_devices("GPU")
    if len(listed) < selection.replicas:
        raise DevicesError(
            f"TensorFlow can use {len(listed)} of the {selection.replicas} selected GPUs: {why_fewer()}; --device cpu "
            "trains on the CPU"
        )
    # On all of them or none: TensorFlow refuses a mixture. Without it one process takes all memory of every GPU.
    for gpu in listed:
        tf.config.experimental.set_memory_growth(gpu, True)


def _split_cpu(replicas: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * replicas)
