"""Which feature of a TFDS data set is the image and which the class, from its own information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trainbox.errors import DataError


@dataclass(frozen=True, kw_only=True)
class ImageAndLabel:
    """Names of the two features, the image's height, width and channels, and the number of classes declared."""

    image: str
    label: str
    input_shape: tuple[int, int, int]
    num_classes: int


def image_and_label(info: Any) -> ImageAndLabel:
    """The image and the class label of the `tfds.core.DatasetInfo` `info`.

    Where a set has several of either, its own supervised pair decides. Raises DataError when the set is not one of
    image classification, or when its images have no fixed shape of bytes.
    """
    import tensorflow_datasets as tfds

    name, features = info.full_name, dict(info.features.items()) if hasattr(info.features, "items") else {}
    # `type(…) is`: subclasses such as LabeledImage are masks and the like.
    images = [key for key, feature in features.items() if type(feature) is tfds.features.Image]
    labels = [key for key, feature in features.items() if type(feature) is tfds.features.ClassLabel]
    pair = info.supervised_keys
    if isinstance(pair, tuple) and len(pair) == 2 and pair[0] in images and pair[1] in labels:
        images, labels = [pair[0]], [pair[1]]
    if len(images) != 1 or len(labels) != 1:
        raise DataError(
            f"data set {name} is not one of image classification: trainbox needs one image and one class label, "
            f"and it has {_listed(images, 'image')} and {_listed(labels, 'class label')}"
        )
    classes = features[labels[0]].num_classes
    if not classes:
        raise DataError(f"data set {name} does not say how many classes its label {labels[0]!r} has")
    return ImageAndLabel(
        image=images[0], label=labels[0], input_shape=_shape(features[images[0]], name), num_classes=int(classes)
    )


def _shape(image: Any, name: str) -> tuple[int, int, int]:
    shape = tuple(image.shape)
    if None in shape:
        raise DataError(
            f"data set {name} has images of variable size {shape}: trainbox trains on images of one size, choose a set "
            "such as mnist, fashion_mnist or cifar10"
        )
    if image.np_dtype != np.uint8:
        pixels = np.dtype(image.np_dtype).name
        raise DataError(f"data set {name} has pixels of type {pixels}: trainbox reads uint8 images")
    height, width, channels = shape
    return int(height), int(width), int(channels)


def _listed(keys: list[str], kind: str) -> str:
    if not keys:
        return f"no {kind}"
    plural = "" if len(keys) == 1 else "s"
    return f"{len(keys)} {kind}{plural} ({', '.join(keys)})"
