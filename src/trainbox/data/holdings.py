"""What lies prepared in a data folder: found by its folders and told by their own descriptions, without TFDS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainbox.data import prepared
from trainbox.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A prepared data set: `name` with its configuration, rows of each split, bytes of its files, and where.

    `splits` is None when its description cannot be read.
    """

    name: str
    version: str
    splits: dict[str, int] | None
    size_bytes: int
    path: Path


def holdings(data_dir: Path) -> list[Holding]:
    """Every prepared data set in `data_dir`, by name and version; none where there is no such folder.

    Raises DataError if the folder may not be read.
    """
    try:
        folders = sorted(path for path in data_dir.iterdir() if path.is_dir() and not path.name.startswith("."))
        found = [path for folder in folders if folder.name != "downloads" for path in _prepared_in(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(
            f"cannot list the data sets in {data_dir} ({error.strerror}): make it readable, or name another --data-dir"
        ) from error
    return [
        Holding(
            name=path.parent.relative_to(data_dir).as_posix(),
            version=path.name,
            splits=_splits(path),
            size_bytes=size_bytes(path),
            path=path,
        )
        for path in found
    ]


def _prepared_in(folder: Path) -> Iterator[Path]:
    """The versions in the folder of one data set, those of its configurations too."""
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        yield from sorted((path for path in place.iterdir() if prepared.is_prepared(path)), key=prepared.order)


def _splits(path: Path) -> dict[str, int] | None:
    try:
        described = json.loads((path / "dataset_info.json").read_text())["splits"]
        return {split["name"]: sum(map(int, split["shardLengths"])) for split in described}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def size_bytes(path: Path) -> int:
    """Bytes of all files in the folder `path`; what vanishes meanwhile, or may not be read, counts nothing."""
    total = 0
    for folder, _, files in os.walk(path):
        for file in files:
            try:
                total += os.lstat(os.path.join(folder, file)).st_size
            except OSError:
                continue
    return total
