"""From a word to a model: one file a model; `build` finds it by its name, or in a user's FILE.py:FUNCTION.

Every model takes float32 [batch, …], of images pixels in [0, 1] [batch, height, width, channels], and gives [batch,
classes]: logits, or probabilities (`gives_logits` tells); one class is a number to predict. Keras is imported only
where a model is built: `check` and `source` are instant.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from trainbox import plugin
from trainbox.errors import UsageError

if TYPE_CHECKING:
    import keras

BUILT_IN = ("cnn", "mlp")


def check(spec: str) -> None:
    """Whether `spec` names a model, as far as can be told without running anything of it.

    Raises:
        UsageError: no such model, or its file cannot be read or parsed, or does not define the function.
    """
    _own(spec)


def source(spec: str) -> tuple[Path, str] | None:
    """Absolute path and SHA-256 (hexadecimal) of the file of the user's own model; None for a built-in one."""
    reference = _own(spec)
    return (reference.path, reference.sha256) if reference else None


def build(spec: str, *, input_shape: tuple[int, ...], num_classes: int, **offered: object) -> keras.Model:
    """The model `spec` with fresh weights, for rows of `input_shape`, (height, width, channels) of images.

    Call it in the scope of the strategy, after `keras.utils.set_random_seed`. A user's function gets `input_shape` and
    `num_classes`, and of `offered` what it asks for by name.

    Raises:
        UsageError: no such model, or the user's function or the model that it returns is not usable.
    """
    from trainbox.models import cnn, mlp, own

    reference = _own(spec)
    if reference is not None:
        return own.build(reference, input_shape=input_shape, num_classes=num_classes, offered=offered)
    module = {"cnn": cnn, "mlp": mlp}[spec]
    try:
        return module.build(input_shape=input_shape, num_classes=num_classes)
    except ValueError as error:
        raise UsageError(
            f"--model {spec} cannot take rows of shape {input_shape} ({plugin.one_line(error)}); use another model"
        ) from error


def gives_logits(model: keras.Model, *, input_shape: tuple[int, ...]) -> bool:
    """Whether the outputs are logits; False for probabilities, as after a final softmax.

    Told by the outputs for a few images of noise, so that it holds for subclassed models too: rows without a negative
    value that sum to 1 are probabilities. Everything else is taken for logits, a final sigmoid included.
    """
    import keras
    import numpy as np

    noise = np.random.default_rng(0).random((4, *input_shape), np.float32)
    outputs = keras.ops.convert_to_numpy(model(noise, training=False)).astype(np.float64)
    # A sum over classes in half precision is good to a few thousandths.
    return bool((outputs < 0).any() or (np.abs(outputs.sum(axis=-1) - 1) > 1e-2).any())


def _own(spec: str) -> plugin.Reference | None:
    """The reference to a user's own model, checked; None for a built-in model."""
    if spec in BUILT_IN:
        return None
    if ".py" in spec:
        return plugin.parse(spec, option="--model")
    near = get_close_matches(spec, BUILT_IN, n=1)
    hint = f"did you mean {near[0]}?" if near else f"the models are {', '.join(BUILT_IN)} and your own FILE.py:FUNCTION"
    raise UsageError(f"there is no model {spec!r}; {hint}")
