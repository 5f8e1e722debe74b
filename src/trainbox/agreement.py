"""What the workers of a run agree on: every one calls the same method at the same point, and all get the same answer.

Their clocks, signals and disks differ, and a step in which not all take part never ends. So whatever depends on these,
the length of a block, a request to stop, what a checkpoint holds, is agreed on before it is acted on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf
from tensorflow.python.eager import context

Words = npt.NDArray[np.int64]


class Agreement(Protocol):
    """`index` counts the workers from 0, which is the chief: it alone writes the run folder."""

    index: int
    size: int

    def gather(self, number: int) -> list[int]: ...

    def share(self, make: Callable[[], Any]) -> Any: ...

    def align(self, variables: Sequence[keras.Variable]) -> None: ...

    def abort(self, why: str) -> None: ...


class Alone:
    """A run of one worker agrees with itself."""

    index, size = 0, 1

    def gather(self, number: int) -> list[int]:
        """The numbers of all workers."""
        return [number]

    def share(self, make: Callable[[], Any]) -> Any:
        """What `make` gives."""
        return make()

    def align(self, variables: Sequence[keras.Variable]) -> None:
        """There is nothing to align with."""

    def abort(self, why: str) -> None:
        """Nobody waits."""


class AmongWorkers:
    """Agreement over the hosts of a `MultiWorkerMirroredStrategy`; raises TensorFlow's errors when a worker is lost.

    All of it is one sum of integers over the workers, to which those that have nothing to say add zeros: exact for the
    bits of any type.
    """

    def __init__(self, strategy: tf.distribute.Strategy, *, index: int, size: int) -> None:
        self.index, self.size = index, size
        # Sums on the hosts' CPUs: that of the replicas would need a kernel for integers on the GPU.
        hosts, cpu = strategy.extended._host_cross_device_ops, strategy.extended._worker_device

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int64)])
        def add(words: Any) -> Any:
            with tf.device(cpu):
                words = tf.identity(words)
                return hosts.reduce(tf.distribute.ReduceOp.SUM, words, words)

        self._add = add

    def gather(self, number: int) -> list[int]:
        """The numbers of all workers, in the order of their indices."""
        row = np.zeros(self.size, np.int64)
        row[self.index] = number
        return [int(value) for value in self._sum(row)]

    def share(self, make: Callable[[], Any]) -> Any:
        """What `make` gives on the chief, which alone calls it; a value that JSON can hold."""
        told = json.dumps(make()).encode() if self.index == 0 else b""
        return json.loads(self._broadcast(told, length=max(self.gather(len(told)))))

    def align(self, variables: Sequence[keras.Variable]) -> None:
        """Give the variables of all workers the values that the chief has, bit by bit."""
        for variable in variables:
            value = np.asarray(variable.value)
            told = value.tobytes()
            received = np.frombuffer(self._broadcast(told if self.index == 0 else b"", length=len(told)), value.dtype)
            if self.index:
                variable.assign(received.reshape(value.shape))

    def abort(self, why: str) -> None:
        """Let every sum over workers that is waited for, and every later one, fail; from any thread."""
        context.context().abort_collective_ops(tf.errors.UNAVAILABLE, why)

    def _broadcast(self, told: bytes, *, length: int) -> bytes:
        words = np.zeros(-(-length // 8), np.int64)
        if told:
            words.view(np.uint8)[:length] = np.frombuffer(told, np.uint8)
        return self._sum(words).tobytes()[:length]

    def _sum(self, words: Words) -> Words:
        if not len(words):
            return words
        return np.asarray(self._add(words))
