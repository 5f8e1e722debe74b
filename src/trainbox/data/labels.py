"""The rows that a split expression names, with their labels as the run numbers them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trainbox.data import arrays, splits
from trainbox.data.prepared import DatasetInfo
from trainbox.errors import DataError

Array = npt.NDArray[Any]
Say = Callable[[str], None]


def load(
    info: DatasetInfo, expression: str, *, say: Say = lambda text: None
) -> tuple[Array, Array, npt.NDArray[np.int32] | None]:
    """Inputs, labels and the numbers of the rows in them (None: all) that `expression` names; see `arrays.load`.

    The parts of one split are rows of its mapped files; those of several are copied into memory, one after the other.
    """
    found = splits.parts(info, expression)
    names = list(dict.fromkeys(part.split for part in found))
    loaded = {name: arrays.load(info, name, say=say) for name in names}
    if len(names) == 1:
        inputs, labels = loaded[names[0]]
        whole = found == [splits.Part(names[0], 0, len(labels))]
        rows = None if whole else np.concatenate([np.arange(one.first, one.last, dtype=np.int32) for one in found])
        return inputs, _numbered(info, labels), rows
    inputs, labels = (
        np.concatenate([loaded[one.split][which][one.first : one.last] for one in found]) for which in (0, 1)
    )
    return inputs, _numbered(info, labels), None


def used(info: DatasetInfo, *, say: Say = lambda text: None) -> DatasetInfo:
    """The set with its labels numbered anew, so that those that occur in any of its splits are 0, 1, …

    Raises DataError where labels are no classes.
    """
    if info.features.num_classes is None:
        raise DataError(f"--classes used is set, and {info.features.label!r} of data set {info.full_name} is a number")
    found = [np.unique(arrays.load(info, name, say=say)[1]) for name in info.splits]
    return dataclasses.replace(info, used=tuple(int(label) for label in np.unique(np.concatenate(found))))


def _numbered(info: DatasetInfo, labels: Array) -> Array:
    if info.used is None:
        return labels
    return np.searchsorted(np.asarray(info.used, np.int32), labels).astype(np.int32)
