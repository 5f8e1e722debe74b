"""Keras callbacks in trainbox's own loop: the user's list, called as Keras's `fit` would, batch hooks once a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from trainbox import plugin
from trainbox.errors import RunFailedError, UsageError


def load(spec: str | None, *, model: keras.Model, epochs: int) -> Callbacks:
    """The callbacks that the user's FILE.py:FUNCTION returns; none for `spec` None. `model` must be compiled.

    The function gets `model` and `epochs` if it asks for them by name.

    Raises:
        UsageError: the function fails, or does not return a list of Keras callbacks.
    """
    if spec is None:
        return Callbacks([], model=model, epochs=epochs)
    reference = plugin.parse(spec, option="--callbacks")
    found = plugin.call(reference, {"model": model, "epochs": epochs})
    if not isinstance(found, list | tuple) or not all(isinstance(item, keras.callbacks.Callback) for item in found):
        raise UsageError(f"{reference} returned {found!r:.100}, not a list of Keras callbacks; return a list")
    return Callbacks(list(found), model=model, epochs=epochs)


class Callbacks:
    """Calls the hooks of a list of Keras callbacks; what one of them raises becomes a RunFailedError."""

    def __init__(self, callbacks: list[keras.callbacks.Callback], *, model: keras.Model, epochs: int) -> None:
        self._model = model
        self._active = bool(callbacks)
        model.stop_training = False
        self._list = keras.callbacks.CallbackList(callbacks, model=model, epochs=epochs, verbose=0)

    @property
    def active(self) -> bool:
        """Whether there are any."""
        return self._active

    @property
    def stop(self) -> bool:
        """Whether a callback set `model.stop_training`."""
        return bool(self._model.stop_training)

    def begin(self) -> None:
        """Training begins, or goes on after a resume."""
        self._call("on_train_begin")

    def end(self, logs: Mapping[str, float]) -> None:
        """Training is over."""
        self._call("on_train_end", dict(logs))

    def epoch_begins(self, epoch: int) -> None:
        """Epoch `epoch` begins, counted from 0."""
        self._call("on_epoch_begin", epoch)

    def epoch_ends(self, epoch: int, logs: Mapping[str, float]) -> None:
        """Epoch `epoch` is over; `logs` have Keras's names (`loss`, `accuracy`, `val_loss`, …)."""
        self._call("on_epoch_end", epoch, dict(logs))

    def block_ends(self, batch: int, logs: Mapping[str, float]) -> None:
        """A block of steps is over, whose last one was batch `batch` of the epoch, counted from 0."""
        self._call("on_train_batch_end", batch, dict(logs))

    def _call(self, hook: str, *arguments: Any) -> None:
        if not self._active:
            return
        try:
            getattr(self._list, hook)(*arguments)
        except (Exception, SystemExit) as error:
            raise RunFailedError(
                f"a callback failed in {hook} ({plugin.one_line(error)}); correct it, then the same command goes on "
                "from the last checkpoint"
            ) from error
