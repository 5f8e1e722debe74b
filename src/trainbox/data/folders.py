"""A folder of images by class, `folder:/data/pets`: which files, and the name that they are prepared under.

pets/cat/1.jpg  pets/dog/2.png                     one split, train
pets/train/cat/1.jpg  pets/validation/dog/2.png    a split a folder, named as in TFDS; val and valid are validation
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainbox.data.names import DatasetName
from trainbox.errors import DataError

PREFIX = "folder:"
NAME, VERSION = "folder", "1.0.0"
IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")
_SPLITS = {"val": "validation", "valid": "validation", "training": "train", "testing": "test"}


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """The images of the folder `root`: for each split (class, path below `root`) in the order of paths.

    `others` are files that are no images by their names.
    """

    root: Path
    splits: dict[str, tuple[tuple[str, str], ...]]
    others: tuple[str, ...]
    fingerprint: str

    @property
    def classes(self) -> list[str]:
        """Their names in the order of their labels."""
        return sorted({label for images in self.splits.values() for label, _ in images})

    @property
    def name(self) -> DatasetName:
        """What it is prepared as: another name once a file has another name, size or time of change."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", self.root.name).strip("_") or "images"
        return DatasetName(name=NAME, config=f"{plain}-{self.fingerprint}", version=VERSION)


@functools.lru_cache(maxsize=4)
def scan(text: str) -> ImageFolder:
    """What lies in the folder that `text`, `folder:PATH`, names. Raises DataError where it has no images by class."""
    root = Path(text.removeprefix(PREFIX)).expanduser().absolute()
    try:
        files = sorted(_files(root))
    except OSError as error:
        raise DataError(
            f"data set {text} cannot be read: {error.filename or root} ({error.strerror}); give the path of a folder "
            "that has a folder of images for each class"
        ) from error
    images = [file for file in files if file.suffix.lower() in IMAGES]
    depths = {len(file.parts) for file in images}
    if depths not in ({2}, {3}):
        raise DataError(f"data set {text} {_unlike(root, images, depths)}")
    splits: dict[str, list[tuple[str, str]]] = {}
    for file in images:
        split = file.parts[0] if len(file.parts) == 3 else "train"
        splits.setdefault(_SPLITS.get(split.lower(), split.lower()), []).append((file.parts[-2], file.as_posix()))
    return ImageFolder(
        root=root,
        splits={split: tuple(found) for split, found in splits.items()},
        others=tuple(file.as_posix() for file in files if file.suffix.lower() not in IMAGES),
        fingerprint=_fingerprint(root, images),
    )


def _files(root: Path) -> list[Path]:
    """Paths below `root` of all files that are not hidden; links to folders are followed."""
    found: list[Path] = []

    def fail(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, followlinks=True, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder, name).relative_to(root) for name in files if not name.startswith(".")]
    return found


def _unlike(root: Path, images: list[Path], depths: set[int]) -> str:
    if not images:
        return f"has no images ({' '.join(IMAGES)}) in {root}: it needs a folder of images for each class"
    if len(depths) > 1:
        examples = [next(file for file in images if len(file.parts) == depth) for depth in sorted(depths)[:2]]
        return f"has images at different depths, {examples[0]} and {examples[1]}: put all into CLASS/ or SPLIT/CLASS/"
    return f"has {images[0]}, which lies in no folder of a class: put all images into CLASS/ or SPLIT/CLASS/"


def _fingerprint(root: Path, images: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in images:
        status = (root / file).stat()
        digest.update(f"{file.as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:8]
