"""What a data set is, prepared or not, without fetching anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox.data import catalog, names, prepared
from trainbox.data.features import image_and_label
from trainbox.data.holdings import size_bytes


@dataclass(frozen=True, kw_only=True)
class About:
    """A data set of image classification.

    `input_shape` is (height, width, channels). `splits` gives the rows of each split, and is None until the set is
    prepared, because TFDS counts them then. `download_bytes` is what its original files have, those of all its
    configurations if it has several; None if TFDS does not know. `versions` are those that lie prepared, then those
    that this TFDS can make. `path` is None if it is not prepared.
    """

    name: str
    version: str
    versions: list[str]
    input_shape: tuple[int, int, int]
    num_classes: int
    classes: list[str]
    splits: dict[str, int] | None
    download_bytes: int | None
    size_bytes: int | None
    path: Path | None


def about(name: str, *, data_dir: Path) -> About:
    """What `name` is: from its own description where it is prepared in `data_dir`, else from the builder of TFDS.

    Raises DataError for an unknown data set, configuration or version, and for one that trainbox cannot train on.
    """
    asked = names.parse(name)
    path = prepared.find(asked, data_dir)
    if path is not None:
        builder = prepared.builder(path)
        known = sorted(folder.name for folder in path.parent.iterdir() if prepared.is_prepared(folder))
    else:
        builder_class, exact = catalog.resolve(asked)
        builder, known = catalog.build(builder_class, exact, catalog.NOWHERE), []
        known = list(dict.fromkeys([str(builder.canonical_version), str(max(builder.versions))]))
    info = builder.info
    features = image_and_label(info)
    return About(
        name=name,
        version=str(info.version),
        versions=known,
        input_shape=features.input_shape,
        num_classes=features.num_classes,
        classes=list(info.features[features.label].names),
        splits={key: int(split.num_examples) for key, split in info.splits.items()} if path else None,
        download_bytes=int(info.download_size) if path else _download_bytes(builder),
        size_bytes=size_bytes(path) if path else None,
        path=path,
    )


def _download_bytes(builder: Any) -> int | None:
    """The sum over the files whose checksums TFDS keeps with the builder; none are kept for sets fetched by hand."""
    files = builder.url_infos or {}
    return sum(int(file.size) for file in files.values()) if files else None
