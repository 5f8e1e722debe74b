"""The bundled data set `digits`, as a TFDS builder that needs no network.

Importing this module registers the builder with TFDS; it costs the import of TFDS, not that of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from trainbox.data import bundled

_DESCRIPTION = """\
Handwritten digits, 1,797 grey images of 8x8 pixels in 10 classes: the test part of the UCI data set "Optical
Recognition of Handwritten Digits", as scikit-learn ships it. 13 people wrote them. The pixels, 0..16 at the source,
are scaled to 0..255. The split is trainbox's own: a fifth of every class, drawn at random by a fixed seed, is the test
split. **The same writers are in both splits**, so accuracy here does not tell how a model does on writers whom it has
not seen. Licence: CC BY 4.0.
"""

_CITATION = """\
@misc{alpaydin1998digits,
  author    = {Alpaydin, E. and Kaynak, C.},
  title     = {Optical Recognition of Handwritten Digits},
  year      = {1998},
  publisher = {UCI Machine Learning Repository},
  doi       = {10.24432/C50P49}
}
"""


class Digits(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc]  # TFDS has no type stubs
    """1,438 training and 359 test images uint8 [8, 8, 1] of the digits 0..9."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First version."}  # noqa: RUF012  # TFDS asks for a plain class attribute

    def _info(self) -> Any:
        return tfds.core.DatasetInfo(
            builder=self,
            description=_DESCRIPTION,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
            citation=_CITATION,
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        images, labels = bundled.load()
        rows = bundled.split(labels)
        images = bundled.to_bytes(images)
        return {name: self._generate_examples(images, labels, numbers) for name, numbers in rows.items()}

    def _generate_examples(self, images: Any, labels: Any, rows: Any) -> Iterator[tuple[int, dict[str, Any]]]:
        for row in rows.tolist():
            yield row, {"image": images[row][..., None], "label": int(labels[row])}
