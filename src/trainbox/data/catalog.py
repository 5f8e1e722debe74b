"""The data sets that can be made: TFDS's, the bundled one, folders of images, the user's own; and their builders."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainbox.data import folders, names, own
from trainbox.errors import DataError

# A builder looks into its data folder for a set made by another version of its code; here there is none.
NOWHERE = Path(os.devnull)


def found(text: str) -> tuple[Any, names.DatasetName]:
    """The builder's class of the data set that the user calls `text`, and its exact name.

    For the process that prepares it: a folder's images are looked at, and the user's own code is run. Raises DataError
    as `resolve`, and where the folder or the code cannot be used.
    """
    if text.startswith(folders.PREFIX):
        from trainbox.data import folder_builder

        images = folders.scan(text)
        return functools.partial(
            folder_builder.Folder, found=images, shape=folder_builder.common_shape(images)
        ), images.name
    if own.is_file(text):
        builder_class, name = own.load(text)
        return builder_class, _with_version(name, builder_class)
    return resolve(names.parse(text))


def resolve(name: names.DatasetName) -> tuple[Any, names.DatasetName]:
    """The builder's class, and `name` with its configuration and version filled in.

    Raises DataError for a data set, a configuration or a version that TFDS cannot make, naming the nearest.
    """
    import tensorflow_datasets as tfds

    from trainbox.data import digits  # noqa: F401  # registers itself

    known = tfds.list_builders(with_community_datasets=False)
    if name.name not in known:
        raise DataError(
            f"unknown data set {name.name!r}; the nearest that TFDS {tfds.__version__} has: "
            f"{names.nearest(name.name, known)}"
        )
    builder_class = tfds.builder_cls(name.name)
    name = _with_config(name, builder_class)
    return builder_class, _with_version(name, builder_class)


def build(builder_class: Any, name: names.DatasetName, data_dir: Path) -> Any:
    """The builder of `name` over `data_dir`. Raises DataError when it cannot be made."""
    try:
        return builder_class(config=name.config, version=name.version, data_dir=data_dir)
    except Exception as error:  # a builder may raise anything
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"the builder of data set {name} fails ({type(error).__name__}: {reason})") from error


def _with_config(name: names.DatasetName, builder_class: Any) -> names.DatasetName:
    configs = builder_class.builder_configs
    if name.config in configs or (name.config is None and not configs):
        return name
    if name.config is None:
        return replace(name, config=builder_class.default_builder_config.name)
    if not configs:
        raise DataError(f"data set {name.name} has no configurations, and {name.config!r} is asked for: leave it out")
    raise DataError(
        f"data set {name.name} has no configuration {name.config!r}; the nearest: {names.nearest(name.config, configs)}"
    )


def _with_version(name: names.DatasetName, builder_class: Any) -> names.DatasetName:
    """TFDS makes only the canonical version and the newest; older ones it can do no more than read."""
    builder = build(builder_class, replace(name, version=None), NOWHERE)
    makable = [str(builder.canonical_version)]
    if str(max(builder.versions)) not in makable:
        makable.append(str(max(builder.versions)))
    for version in makable:
        if name.accepts(version):
            return replace(name, version=version)
    raise DataError(
        f"data set {name} cannot be prepared: of {replace(name, version=None)} this TFDS makes version "
        f"{' or '.join(makable)} only; ask for that, or bring a prepared folder of the other"
    )
