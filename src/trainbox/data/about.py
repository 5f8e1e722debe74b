"""What a data set is, prepared or not, without fetching anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox.data import catalog, folders, own, prepared
from trainbox.data.features import Features, choose, class_names
from trainbox.data.holdings import size_bytes
from trainbox.data.prepare import find
from trainbox.data.view import View
from trainbox.errors import DataError


@dataclass(frozen=True, kw_only=True)
class About:
    """A data set, and what of it is trained on.

    `features` is None where that needs a word of the user's, which `needs` tells. `splits` gives the rows of each
    split, and is None until the set is prepared, because TFDS counts them then. `download_bytes` is what its original
    files have, those of all its configurations if it has several; None if TFDS does not know. `versions` are those that
    lie prepared, then those that this TFDS can make. `path` is None if it is not prepared.
    """

    name: str
    version: str
    versions: list[str]
    features: Features | None
    needs: str | None
    classes: list[str]
    splits: dict[str, int] | None
    download_bytes: int | None
    size_bytes: int | None
    path: Path | None


def about(name: str, *, data_dir: Path, view: View = View()) -> About:  # noqa: B008  # frozen
    """What `name` is: from its own description where it is prepared in `data_dir`, else from its builder.

    Raises DataError for an unknown data set, configuration or version.
    """
    path = find(name, data_dir)
    if path is None:
        builder_class, exact = catalog.found(name)
        path = prepared.find(exact, data_dir) if own.is_file(name) else None
    if path is not None:
        builder = prepared.builder(path)
        known = sorted(folder.name for folder in path.parent.iterdir() if prepared.is_prepared(folder))
    else:
        builder = catalog.build(builder_class, exact, catalog.NOWHERE)
        known = list(dict.fromkeys([str(builder.canonical_version), str(max(builder.versions))]))
    info, features, needs = builder.info, None, None
    try:
        features = choose(info, view)
    except DataError as error:
        needs = str(error)
    fetched = not name.startswith(folders.PREFIX)
    return About(
        name=name,
        version=str(info.version),
        versions=known,
        features=features,
        needs=needs,
        classes=class_names(info, features.label) if features and features.num_classes else [],
        splits={key: int(split.num_examples) for key, split in info.splits.items()} if path else None,
        download_bytes=int(info.download_size) if path else _download_bytes(builder) if fetched else 0,
        size_bytes=size_bytes(path) if path else None,
        path=path,
    )


def _download_bytes(builder: Any) -> int | None:
    """The sum over the files whose checksums TFDS keeps with the builder; none are kept for sets fetched by hand."""
    files = builder.url_infos or {}
    return sum(int(file.size) for file in files.values()) if files else None
