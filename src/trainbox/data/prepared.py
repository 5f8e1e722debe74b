"""Data sets that lie prepared in the data folder, in TFDS's own layout: found, described, checked, all offline."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox.data.features import Features, choose
from trainbox.data.names import VERSION, DatasetName
from trainbox.data.view import View
from trainbox.errors import DataError

# In the format of `sha256sum`, so that `sha256sum -c` checks a folder without trainbox.
CHECKSUMS = "checksums.sha256"
# Files of a set up to this size are hashed at every start; of a larger one the recorded sums are taken on trust.
VERIFIED_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """A prepared data set.

    `name` is as asked for, `full_name` has configuration and version (`emnist/balanced/3.1.0`), `splits` gives the rows
    of each split, `checksums` the SHA-256 of each data file, and `features` what of it is trained on. `used` are the
    labels that occur, where they are numbered anew from 0, and None where labels count as declared.
    """

    name: str
    full_name: str
    version: str
    path: Path
    splits: dict[str, int]
    checksums: dict[str, str]
    features: Features
    used: tuple[int, ...] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one row: (height, width, channels) of an image."""
        return self.features.input_shape

    @property
    def num_classes(self) -> int | None:
        """The classes that a model tells apart; None where it predicts a number."""
        return len(self.used) if self.used is not None else self.features.num_classes


def find(name: DatasetName, data_dir: Path) -> Path | None:
    """The folder of the highest prepared version that `name` accepts, or None. Raises DataError if it may not look.

    A folder counts as prepared when it has its final name and TFDS's two descriptions, which are there last.
    """
    folder = data_dir / name.name
    try:
        config = name.config or _default_config(folder)
        if config:
            folder /= config
        found = [path for path in folder.iterdir() if is_prepared(path) and name.accepts(path.name)]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(
            f"cannot find data set {name} in {folder} ({error.strerror}): make it readable, or name another --data-dir"
        ) from error
    return max(found, key=order, default=None)


def order(path: Path) -> tuple[int, ...]:
    """What versions are sorted by: their numbers."""
    return tuple(int(part) for part in path.name.split("."))


def _default_config(folder: Path) -> str | None:
    try:
        default = json.loads((folder / ".config" / "metadata.json").read_text()).get("default_config_name")
    except (FileNotFoundError, NotADirectoryError, ValueError, AttributeError):
        return None
    return default if isinstance(default, str) else None


def is_prepared(path: Path) -> bool:
    """Whether `path` has the name of a version and both descriptions."""
    descriptions = (path / "dataset_info.json", path / "features.json")
    return VERSION.fullmatch(path.name) is not None and all(file.is_file() for file in descriptions)


def describe(path: Path, *, name: str, view: View = View(), whole: bool = False) -> DatasetInfo:  # noqa: B008  # frozen
    """What the prepared folder `path` holds, seen as `view` says; `name` is what the user called it, `whole` see
    `checked`.

    Raises DataError when it is damaged, or not a set that trainbox can train on.
    """
    info = builder(path).info
    features = choose(info, view)
    files = [Path(file).name for split in info.splits.values() for file in split.filenames]
    return DatasetInfo(
        name=name,
        full_name=info.full_name,
        version=str(info.version),
        path=path,
        splits={key: split.num_examples for key, split in info.splits.items()},
        checksums=checked(path, files, whole=whole),
        features=features,
    )


def builder(path: Path) -> Any:
    """TFDS's reader of the prepared folder `path`: from its own descriptions, without the code that made it."""
    import tensorflow_datasets as tfds

    try:
        return tfds.builder_from_directory(path)
    except Exception as error:  # whatever TFDS, protobuf or JSON make of a damaged description
        reason = str(error).strip().partition("\n")[0]
        raise damaged(path, f"its description cannot be read ({type(error).__name__}: {reason})") from error


def damaged(path: Path, reason: str) -> DataError:
    """The error of a prepared folder that is not as it was written."""
    return DataError(
        f"the data set in {path} is damaged: {reason}; remove that folder and start again to prepare it anew"
    )


def checked(path: Path, files: list[str], *, whole: bool = False) -> dict[str, str]:
    """SHA-256 of each of `files` in the folder `path`, compared with those recorded there, if any are.

    Of more than `VERIFIED_BYTES` the recorded ones are taken on trust, unless the `whole` set is to be read.

    Raises DataError naming the first file that is missing, unreadable or other than recorded.
    """
    recorded = _recorded(path)
    try:
        size = sum((path / file).stat().st_size for file in files)
        if not whole and size > VERIFIED_BYTES and all(file in recorded for file in files):
            return {file: recorded[file] for file in files}
        found = {file: _sha256(path / file) for file in files}
    except OSError as error:
        raise damaged(path, f"{Path(error.filename or path).name} cannot be read ({error.strerror})") from error
    for file, digest in found.items():
        if recorded.get(file, digest) != digest:
            raise damaged(path, f"{file} has SHA-256 {digest}, and {recorded[file]} was written")
    return found


def record(path: Path, files: list[str]) -> None:
    """Write the SHA-256 of each of `files` into the folder `path`."""
    lines = [f"{_sha256(path / file)}  {file}\n" for file in files]
    (path / CHECKSUMS).write_text("".join(lines))


def _recorded(path: Path) -> dict[str, str]:
    try:
        lines = (path / CHECKSUMS).read_text().splitlines()
    except FileNotFoundError:  # prepared by TFDS alone
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, f"{CHECKSUMS} cannot be read ({error})") from error
    return {file: digest for digest, _, file in (line.partition("  ") for line in lines)}


def has_checksums(path: Path) -> bool:
    """Whether SHA-256 are recorded in the folder `path`."""
    return (path / CHECKSUMS).is_file()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
