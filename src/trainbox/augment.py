"""Random changes of images: pure functions of the images and of numbers that were drawn for them.

Images are float32 [rows, height, width, channels] with values in [0, 1], and so are those that come out. Numbers are
float32 [rows] in [0, 1), one for each image. Nothing is computed across images, so what becomes of one does not depend
on how many lie beside it; and whatever is added up within one is added as integers, in which no order matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from trainbox.changes import Change
from trainbox.errors import UsageError

# The fixed point of the sum over an image, which is exact up to 2^47 values.
_STEPS = 65536.0
# Red, green and blue in the brightness of a pixel (ITU-R BT.601).
_BRIGHTNESS = (0.299, 0.587, 0.114)


def numbers_needed(changes: Sequence[Change]) -> int:
    """How many numbers `changed` needs for each image."""
    return sum(_FUNCTIONS[change.kind][0] for change in changes)


def changed(images: Any, numbers: Any, changes: Sequence[Change]) -> Any:
    """The images after all changes, one after the other, with `numbers`, float32 [rows, numbers_needed]."""
    first = 0
    for change in changes:
        count, function = _FUNCTIONS[change.kind]
        images = function(images, *(numbers[:, first + number] for number in range(count)), change)
        first += count
    return images


def refuse(changes: Sequence[Change], *, input_shape: Sequence[int]) -> None:
    """Refuse what cannot be done to images of `input_shape` (height, width, channels).

    Raises:
        UsageError: an image is not larger than the border that it is to get.
    """
    for change in changes:
        if change.kind == "crop" and change.amount >= min(input_shape[:2]):
            raise UsageError(
                f"--augment crop:{change.amount:.0f} is too far for images of {input_shape[0]}×{input_shape[1]}; give "
                f"at most crop:{min(input_shape[:2]) - 1}"
            )


def flipped(images: Any, numbers: Any, *, axis: int) -> Any:
    """Those whose number is below one half mirrored along `axis`: 2 is left and right, 1 is up and down."""
    return tf.where(_of_images(numbers < 0.5), tf.reverse(images, [axis]), images)


def cropped(images: Any, down: Any, right: Any, *, border: int, zeros: bool = False) -> Any:
    """A part of the old size of each image with a border of so many pixels, which begins somewhere in it.

    The border is black with `zeros`, else the reflection of the image, without its outermost pixels once more; `border`
    is smaller than the image. The part begins at row floor(`down` · (2 · border + 1)), and at such a column.
    """
    for axis, numbers in ((1, down), (2, right)):
        size = images.shape[axis]
        begin = tf.floor(numbers * (2 * border + 1.0)) - border
        places = begin[:, None] + tf.range(float(size))[None, :]
        reflected = size - 1.0 - tf.abs(size - 1.0 - tf.abs(places))
        gathered = tf.gather(images, tf.cast(reflected, tf.int32), axis=axis, batch_dims=1)
        inside = (places >= 0) & (places < size)
        images = tf.where(_along(inside, axis), gathered, 0.0) if zeros else gathered
    return images


def rotated(images: Any, numbers: Any, *, degrees: float) -> Any:
    """Turned about the middle by an angle from -`degrees` to `degrees`, bilinear, black outside the image."""
    height, width = images.shape[1:3]
    cos, sin = _cos_and_sin((tf.cast(numbers, tf.float64) - 0.5) * (degrees * math.pi / 90.0))
    down, right = (height - 1) / 2.0, (width - 1) / 2.0
    nothing = tf.zeros_like(cos)
    transforms = tf.stack(
        [
            cos, -sin, right - (cos * right - sin * down),
            sin, cos, down - (sin * right + cos * down),
            nothing, nothing,
        ],
        axis=1,
    )  # fmt: skip
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.cast(transforms, tf.float32),
        output_shape=tf.constant([height, width]),
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )


def coloured(images: Any, brightness: Any, contrast: Any, saturation: Any, *, strength: float) -> Any:
    """Brightness, then contrast, then saturation changed by factors from 1 - `strength` to 1 + `strength`.

    Contrast is the distance from the mean of the image, saturation that of its three channels from their brightness;
    images of another number of channels have none. After each the values are cut off at 0 and 1.
    """
    brightness, contrast, saturation = (
        _of_images(1.0 + (numbers - 0.5) * (2.0 * strength)) for numbers in (brightness, contrast, saturation)
    )
    images = _within(images * brightness)
    mean = _means(images)
    images = _within(mean + (images - mean) * contrast)
    if images.shape[3] != len(_BRIGHTNESS):
        return images
    red, green, blue = (images[..., channel : channel + 1] * share for channel, share in enumerate(_BRIGHTNESS))
    grey = red + green + blue
    return _within(grey + (images - grey) * saturation)


def _cos_and_sin(angles: Any) -> tuple[Any, Any]:
    """Of angles from -π to π, float64, by sums and products alone.

    TensorFlow's own differ in the last bit between the processor's vectors and what is left over at their end.
    """
    half = angles / 2.0
    square = half * half
    sin, cos = tf.ones_like(half), tf.ones_like(half)
    for number in range(20, 0, -2):
        sin = 1.0 - square * sin / float(number * (number + 1))
        cos = 1.0 - square * cos / float(number * (number - 1))
    sin = half * sin
    return 1.0 - 2.0 * sin * sin, 2.0 * sin * cos


def _means(images: Any) -> Any:
    """The mean of each image, [rows, 1, 1, 1], added up as integers."""
    total = tf.reduce_sum(tf.cast(tf.round(images * _STEPS), tf.int64), axis=[1, 2, 3], keepdims=True)
    count = math.prod(images.shape[1:])
    return tf.cast(tf.cast(total, tf.float64) / (_STEPS * count), tf.float32)


def _within(images: Any) -> Any:
    return tf.clip_by_value(images, 0.0, 1.0)


def _of_images(values: Any) -> Any:
    """Values of rows, [rows], to compute with images."""
    return values[:, None, None, None]


def _along(values: Any, axis: int) -> Any:
    """Values of rows and places, [rows, size], to compute with images that have these places along `axis`."""
    return values[:, :, None, None] if axis == 1 else values[:, None, :, None]


def _flip(images: Any, numbers: Any, change: Change) -> Any:
    return flipped(images, numbers, axis=1 if change.kind == "flip-vertical" else 2)


def _crop(images: Any, down: Any, right: Any, change: Change) -> Any:
    return cropped(images, down, right, border=int(change.amount), zeros=change.zeros)


def _rotate(images: Any, numbers: Any, change: Change) -> Any:
    return rotated(images, numbers, degrees=change.amount)


def _colour(images: Any, brightness: Any, contrast: Any, saturation: Any, change: Change) -> Any:
    return coloured(images, brightness, contrast, saturation, strength=change.amount)


# For each kind of change, how many numbers an image needs, and the function.
_FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "flip": (1, _flip),
    "flip-vertical": (1, _flip),
    "crop": (2, _crop),
    "rotate": (1, _rotate),
    "colour": (3, _colour),
}
