"""One model, its batch cut over the devices: what `keras.utils.multi_gpu_model` did.

There is one set of weights, on the first device. In every step they are copied to the others, each device computes the
outputs of its part of the batch, the outputs are concatenated on the first device, and loss and metrics are computed
there. The gradient of the outputs goes back to the devices, and one of all weights comes from each. So all weights
travel twice in each step, where towers and mirrored replicas send gradients alone: this is to compare, not to be fast.

A part is one shard at a time, V/R of them a device, and each shard has a gradient of its own, since the weights enter
it as a copy of its own. These are added by the one pairwise tree, so with --reproducible the bits are those of one
device. Evaluation is on the first device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainbox.learner import Batch, Feed, Learner, Tensors, on_host, values
from trainbox.reduction import pairwise, sum_shards
from trainbox.step import TrainStep


@dataclass(frozen=True, kw_only=True)
class Part:
    """One shard's way through the model on one device, and the tape that recorded it."""

    device: str
    tape: tf.GradientTape
    weights: Tensors
    row_weights: Any
    outputs: Any
    labels: Any
    added: Any
    state: Tensors


class BatchSplitStep(TrainStep):
    """One optimizer step on one global batch cut over `devices`; the learner's strategy is TensorFlow's default."""

    def __init__(self, learner: Learner, feed: Feed, *, devices: Sequence[str], **options: bool) -> None:
        """`options` are those of `TrainStep`, which see. Raises UsageError as it does."""
        super().__init__(learner, feed, **options)
        self._devices = list(devices)

    def _total(self, batch: Batch, scale: Any) -> tuple[Tensors, Tensors, Any, Any]:
        model, shards = self._learner.model, self._learner.plan.shards_per_replica
        with tf.device(self._devices[0]):
            weights, state = values(model.trainable_variables), values(model.non_trainable_variables)
            specs = self._specs(weights, state)

            def compute(turn: Any) -> Tensors:
                parts = [
                    self._forward(device, on_host(batch, number * shards + turn), weights, state)
                    for number, device in enumerate(self._devices)
                ]
                return [tensor for summands in self._backward(parts, scale) for tensor in summands]

            sums = sum_shards(compute, shards, specs * len(self._devices))
            total = [pairwise(sums[start :: len(specs)]) for start in range(len(specs))]
            return self._mean(total, weights, state, scale)

    def _forward(self, device: str, batch: Batch, weights: Tensors, state: Tensors) -> Part:
        with tf.device(device), tf.GradientTape(watch_accessed_variables=False) as tape:
            copies = [tf.identity(weight) for weight in weights]
            tape.watch(copies)
            outputs, labels, added, new_state = self._learner.outputs(
                self._feed, batch, copies, self._seeded(state, batch), training=True
            )
        return Part(
            device=device, tape=tape, weights=copies, row_weights=batch.weights,
            outputs=outputs, labels=labels, added=added, state=new_state,
        )  # fmt: skip

    def _backward(self, parts: list[Part], scale: Any) -> list[Tensors]:
        """For each part what one shard gives: the loss and its gradient on the first device, the rest on each one."""
        outputs, added = [part.outputs for part in parts], [part.added for part in parts]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([*outputs, *added])
            # Cut again: the loss of a shard alone has the same bits whatever lies beside it.
            cut = tf.split(tf.concat(outputs, 0), len(parts))
            statistics = [
                self._learner.measure(rows, part.labels, part.added, part.row_weights)
                for rows, part in zip(cut, parts, strict=True)
            ]
            losses = [each[0] * scale if self._loss_scaling else each[0] for each in statistics]
        zero = tf.UnconnectedGradients.ZERO
        back = tape.gradient(losses, [outputs, added], unconnected_gradients=zero)
        given = []
        for part, *received, measured in zip(parts, *back, statistics, strict=True):
            with tf.device(part.device):
                gradients = part.tape.gradient(
                    [part.outputs, part.added], part.weights, output_gradients=received, unconnected_gradients=zero
                )
                given.append(self._summands(gradients, part.state, measured))
        return given
