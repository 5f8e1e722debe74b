"""From rows to global batches: which rows, in which shard, with which weight.

A batch is only the numbers of its rows. They are a pure function of (seed, epoch, step); the rows themselves are
gathered a whole shard at a time inside the compiled step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainbox import randomness
from trainbox.plan import Plan

Indices = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Rows of one part of a data set: inputs [n, …] in the set's own type, labels int32 [n] (float32 to regress on).

    With `rows`, int32, it is these of them alone, in this order. The arrays may be mapped files and are never copied.
    """

    inputs: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    rows: Indices | None = None

    def __len__(self) -> int:
        return len(self.labels) if self.rows is None else len(self.rows)

    def only(self, numbers: Indices) -> Split:
        """The rows of these numbers."""
        return Split(inputs=self.inputs, labels=self.labels, rows=self.numbered(numbers))

    def numbered(self, numbers: Indices) -> Indices:
        """Where in the arrays the rows of these numbers are."""
        return numbers if self.rows is None else self.rows[numbers]


class ResidentFeed:
    """Feeds a split whose arrays are tensors in host memory, from which the compiled step gathers rows by number."""

    specs: tuple[Any, ...] = ()

    def __init__(self, split: Split, plan: Plan) -> None:
        self.plan = plan
        self._split = split
        self._order: Indices = np.empty(0, np.int32)
        self._step = 0
        with tf.device("CPU:0"):
            self._inputs, self._labels = _tensor(split.inputs), _tensor(split.labels)

    def begin(self, order: Indices, *, first_step: int) -> None:
        """Go through the rows in this order, from this step of it on."""
        self._order, self._step = self.numbered(order), first_step

    def numbered(self, order: Indices) -> Indices:
        """The positions for `fetch` of these rows of the split."""
        return self._split.numbered(order)

    def take(self, steps: int) -> tuple[tuple[Any, ...], Indices, Weights]:
        """The next `steps` global batches: nothing but their rows' numbers and weights, [steps, V, rows]."""
        indices, weights = deal(self._order, self.plan, first_step=self._step, steps=steps)
        self._step += steps
        return (), indices, weights

    def fetch(self, source: tuple[Any, ...], indices: Any) -> tuple[Any, Any]:
        """Inputs [n, …] in their own type and labels [n] of the rows `indices`, int32 [n]."""
        return tf.gather(self._inputs, indices), tf.gather(self._labels, indices)

    def close(self) -> None:
        """There is nothing to end."""


def _tensor(array: npt.NDArray[Any]) -> Any:
    """A mapped file as it lies, without a copy, so that its pages stay the system's; other arrays are copied."""
    mapped = isinstance(array, np.memmap) and len(array) and array.flags.writeable and array.ctypes.data % 64 == 0
    return tf.experimental.dlpack.from_dlpack(np.asarray(array).__dlpack__()) if mapped else tf.constant(array)


def hold_out(split: Split, *, share: float, seed: int) -> tuple[Split, Split]:
    """Training and validation rows: a `share` of the rows, drawn by `seed` and the same for every epoch, is held out.

    At least one row stays on either side if there are two.
    """
    held = min(max(round(len(split) * share), 1), len(split) - 1)
    order = randomness.permutation(len(split), seed=seed, epoch=0, domain=randomness.SPLIT)
    validation, training = np.sort(order[:held]), np.sort(order[held:])
    return split.only(training), split.only(validation)


def epoch_order(plan: Plan, *, seed: int, epoch: int) -> Indices:
    """Row numbers of epoch `epoch` in the order of training: int32 [examples]."""
    return randomness.permutation(plan.examples, seed=seed, epoch=epoch)


def deal(order: Indices, plan: Plan, *, first_step: int, steps: int) -> tuple[Indices, Weights]:
    """Rows and weights of the global batches `first_step` … of an epoch: two arrays of shape [steps, V, rows].

    A batch's rows lie in its shards one after the other. Where rows are missing, at the end of a shard that B does not
    fill or in the last batch, real rows of the same batch are repeated with weight 0, so that every shard has its full
    static shape and none is ever empty.
    """
    slot = np.arange(plan.shards * plan.rows)
    start = (first_step + np.arange(steps))[:, None] * plan.global_batch
    present = np.minimum(plan.global_batch, len(order) - start)
    indices = order[start + slot % present]
    weights = (slot < present).astype(np.float32)
    shape = (steps, plan.shards, plan.rows)
    return indices.reshape(shape), weights.reshape(shape)
