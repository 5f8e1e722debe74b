"""The builder of TFDS that prepares a folder of images by class; see `folders`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow_datasets as tfds

from trainbox.data.folders import VERSION, ImageFolder
from trainbox.errors import DataError


class Folder(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # TFDS has no type stubs
    """Images with their class and their path in the folder, as the files have them."""

    VERSION = tfds.core.Version(VERSION)

    def __init__(self, *, found: ImageFolder, shape: tuple[int | None, int | None, int], **words: Any) -> None:
        """`shape` is (height, width, channels) of all images, with None where they differ."""
        self._found, self._shape = found, shape
        super().__init__(**words | {"config": tfds.core.BuilderConfig(name=found.name.config)})

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description=f"Images by class of the folder {self._found.root.name}.",
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=self._shape),
                    "label": tfds.features.ClassLabel(names=self._found.classes),
                    "file": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(images) for split, images in self._found.splits.items()}

    def _generate_examples(self, images: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        for label, file in images:
            yield file, {"image": self._found.root / file, "label": label, "file": file}


def common_shape(found: ImageFolder) -> tuple[int | None, int | None, int]:
    """Height and width of all images, None where they differ, and 1 channel if all are grey, else 3.

    Every image is decoded for it, so that a damaged one is found now. Raises DataError naming it.
    """
    files = [file for images in found.splits.values() for _, file in images]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        shapes = set(pool.map(lambda file: _shape(found, file), files))
    heights, widths, channels = ({shape[axis] for shape in shapes} for axis in range(3))
    same = len(heights) == len(widths) == 1
    return (*((heights.pop(), widths.pop()) if same else (None, None)), 1 if channels == {1} else 3)


def _shape(found: ImageFolder, file: str) -> tuple[int, int, int]:
    import tensorflow as tf

    try:
        with tf.device("CPU:0"):
            image = tf.io.decode_image(tf.io.read_file(str(found.root / file)), expand_animations=False)
    except tf.errors.OpError as error:
        reason = " ".join(str(error.message).split())[:120]
        raise DataError(f"{found.root / file} cannot be read as an image ({reason}): repair or remove it") from error
    height, width, channels = image.shape
    return int(height), int(width), int(channels)
