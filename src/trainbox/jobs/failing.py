"""What TensorFlow raises while it builds and trains a model, as a line for the user."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from trainbox import plugin
from trainbox.config import RunConfig
from trainbox.errors import RunFailedError, UsageError
from trainbox.plan import Plan

# What kernels, the driver and C++ say besides TensorFlow's own kind of error.
_MEMORY = re.compile(
    r"out of memory|out_of_memory|failed to allocate|cannot allocate memory|alloc_failed|bad_alloc", re.I
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error, or the one that it was raised from, says that memory is short."""
    import tensorflow as tf

    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return True
    if isinstance(error, tf.errors.OpError | RuntimeError) and _MEMORY.search(str(error)):
        return True
    return error.__cause__ is not None and out_of_memory(error.__cause__)


@contextlib.contextmanager
def told(config: RunConfig, plan: Plan) -> Iterator[None]:
    """Tell the errors of TensorFlow.

    Raises:
        RunFailedError: the memory does not suffice, or an operation failed.
        UsageError: `--reproducible` with an operation that cannot be.
    """
    import tensorflow as tf

    try:
        yield
    except (tf.errors.OpError, MemoryError) as error:
        if out_of_memory(error):
            raise RunFailedError(memory_message(config, plan)) from error
        if "eterminis" in str(error):
            raise UsageError(
                f"--reproducible does not go with an operation of the model ({plugin.one_line(error)}); build the "
                "model without it, or leave --reproducible out"
            ) from error
        raise RunFailedError(f"training failed in TensorFlow: {plugin.one_line(error)}") from error


def memory_message(config: RunConfig, plan: Plan) -> str:
    """That the memory does not suffice for a plan, and which batch or shards take less."""
    at_once = f", {plan.rows} of them at once" if plan.shards_per_replica > 1 else ""
    shards = plan.replicas * (1 << plan.shards_per_replica.bit_length())
    rows = -(-plan.global_batch // shards)
    remedy = "use a smaller --batch-size"
    if config.engine != "fit":
        if not config.reproducible:
            remedy += " (auto finds the largest that fits)"
        if rows < plan.rows:
            remedy += f", or --shards {shards} (now {plan.shards}) to compute {rows} rows at once"
    return (
        f"out of memory with a global batch of {plan.global_batch}, {plan.rows_per_replica} rows a replica{at_once}; "
        f"{remedy}"
    )
