"""One record of a prepared data set → its input, of one shape and in its own type, and its label; in a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainbox.data import prepared

if TYPE_CHECKING:
    from trainbox.data.prepared import DatasetInfo


def decoder(info: DatasetInfo) -> Callable[[Any], tuple[Any, Any]]:
    """A function of one serialized record, a string tensor: its image, uint8 of `info.input_shape`, and its label, an
    int32 scalar.

    To be called on the CPU, in a `tf.function` or a map of tf.data. Of an animation the first picture counts. An image
    that has not the shape that is described is an InvalidArgumentError.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    features = prepared.builder(info.path).info.features
    wanted = tfds.decode.PartialDecoding({info.image: True, info.label: True}).extract_features(features)
    encoded = {info.image: tfds.decode.SkipDecoding()}

    def decode(record: Any) -> tuple[Any, Any]:
        found = wanted.deserialize_example(record, decoders=encoded)
        image = tf.io.decode_image(found[info.image], channels=info.input_shape[-1], expand_animations=False)
        return tf.ensure_shape(image, info.input_shape), tf.cast(found[info.label], tf.int32)

    return decode
