"""A trained model as files that live without trainbox: a SavedModel to serve, and `model.keras` to go on with in Keras.

Both are written under a temporary name beside their place, brought to the disk and renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from trainbox import plugin
from trainbox.errors import RunFailedError, UsageError
from trainbox.normalisation import Normalisation


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written. `keras` is None where the model cannot be described in a file, and `notice` says why."""

    saved_model: Path
    keras: Path | None
    notice: str | None


# What the endpoint's input and output are called for images by class; for other rows, and numbers to predict.
IMAGES, ROWS = "images", "rows"
PROBABILITIES, PREDICTIONS = "probabilities", "predictions"


def export(
    model: keras.Model,
    *,
    directory: Path,
    input_shape: tuple[int, ...],
    gives_logits: bool,
    names: tuple[str, str] = (IMAGES, PROBABILITIES),
    normalisation: Normalisation | None = None,
) -> Exported:
    """Write `saved_model/` and `model.keras` into `directory`, in place of what an earlier export left there.

    What a `normalisation` does to the model's inputs becomes a part of both.

    Raises:
        UsageError: the folder is not writable, or the model cannot take a batch of any size.
        RunFailedError: writing failed, as on a full disk.
    """
    saved_model = directory / "saved_model"
    save_for_serving(
        model, saved_model, input_shape=input_shape, gives_logits=gives_logits, names=names, normalisation=normalisation
    )
    target = directory / "model.keras"
    notice = save_for_keras(model, target, normalisation=normalisation)
    return Exported(saved_model=saved_model, keras=None if notice else target, notice=notice)


def save_for_serving(
    model: keras.Model,
    target: Path,
    *,
    input_shape: tuple[int, ...],
    gives_logits: bool,
    names: tuple[str, str] = (IMAGES, PROBABILITIES),
    normalisation: Normalisation | None = None,
) -> None:
    """Write a SavedModel that needs neither Keras nor trainbox, nor the devices that it was trained on.

    Its endpoint `serve`, which is `serving_default` too, takes what `names` calls the input, float32 [N, *input_shape]
    with any N (pixels in [0, 1], a byte divided by 255), and gives the output, float32 [N, classes].

    Raises:
        UsageError: the folder is not writable, or the model cannot take a batch of any size.
        RunFailedError: writing failed, as on a full disk.
    """

    taken, given = names

    def answer(inputs: Any) -> dict[str, Any]:
        inputs = normalisation(inputs) if normalisation else inputs
        outputs = tf.cast(model(inputs, training=False), tf.float32)
        return {given: tf.nn.softmax(outputs) if gives_logits else outputs}

    # Whoever calls the endpoint of a loaded file names its input as the function here does.
    serve = {IMAGES: lambda images: answer(images), ROWS: lambda rows: answer(rows)}[taken]

    archive = keras.export.ExportArchive()
    archive.track(model)
    try:
        endpoint = archive.add_endpoint("serve", serve, [tf.TensorSpec((None, *input_shape), tf.float32, name=taken)])
        endpoint.get_concrete_function()
    except Exception as error:
        raise UsageError(f"the model cannot be exported for batches of any size: {plugin.one_line(error)}") from error
    _publish(target, lambda partial: archive.write_out(str(partial), verbose=False))


def save_for_keras(model: keras.Model, target: Path, *, normalisation: Normalisation | None = None) -> str | None:
    """Write the model, without optimizer, as a `.keras` file; or say in one line why Keras cannot describe it.

    A `normalisation` is its first layer. `keras.saving.load_model` needs the user's own classes to read one that has
    them.

    Raises:
        UsageError: the folder is not writable.
        RunFailedError: writing failed, as on a full disk.
    """
    unsaveable: list[str] = []

    def write(partial: Path) -> None:
        try:
            with _without_optimizer(model):
                whole = normalisation.before(model) if normalisation else model
                whole.save(partial)
        except OSError:
            raise
        except NotImplementedError:
            unsaveable.append(f"no {target.name}: {type(model).__name__}, or a layer of it, has no get_config()")
        except Exception as error:
            unsaveable.append(f"no {target.name}: Keras cannot describe the model ({plugin.one_line(error)})")

    _publish(target, write, wanted=lambda: not unsaveable)
    return unsaveable[0] if unsaveable else None


@contextmanager
def _without_optimizer(model: keras.Model) -> Iterator[None]:
    """Whoever loads the file need not know trainbox's schedules, nor carry the optimizer's copies of the weights."""
    if not model.compiled:
        yield
        return
    optimizer = model.optimizer
    model.compiled, model.optimizer = False, None
    try:
        yield
    finally:
        model.compiled, model.optimizer = True, optimizer


def _publish(target: Path, write: Callable[[Path], None], *, wanted: Callable[[], bool] = lambda: True) -> None:
    """Let `write` make a file or folder under a temporary name, then put it in the place of `target` if it is `wanted`.

    A file is replaced at once; between an old folder's going and a new one's coming there is a moment without either.
    """
    partial = target.with_name(f".partial.{target.name}")
    replaced = target.with_name(f".replaced.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(partial)
        write(partial)
        if wanted():
            _sync(partial)
            if target.is_dir():
                _remove(replaced)
                target.rename(replaced)
            partial.replace(target)
            _remove(replaced)
            _sync(target.parent, deep=False)
        _remove(partial)
    except PermissionError as error:
        raise UsageError(f"{target} cannot be written ({error.strerror}); choose a writable folder") from error
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or plugin.one_line(error)
        raise RunFailedError(f"{target} could not be written ({reason}); nothing was replaced") from error


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path, *, deep: bool = True) -> None:
    """Bring a file, or a folder and what is in it, to the disk."""
    if deep and path.is_dir():
        for child in path.iterdir():
            _sync(child)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
