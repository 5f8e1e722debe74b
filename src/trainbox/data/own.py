"""The user's own builder of TFDS, `--dataset /code/my_dataset.py`: its code found and loaded."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import Any

from trainbox.data.names import DatasetName
from trainbox.errors import DataError

# In a prepared folder: the SHA-256 of the code that made it.
CODE = "code.sha256"


def is_file(text: str) -> bool:
    """Whether `text` is FILE.py or FILE.py:CLASS rather than a name."""
    return text.partition(":")[0].endswith(".py")


def split(text: str) -> tuple[Path, str | None]:
    """File and class of FILE.py:CLASS. Raises DataError if there is no such file."""
    name, _, chosen = text.partition(":")
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise DataError(
            f"data set {text}: there is no file {path}; give the path of a file that defines a TFDS builder"
        )
    return path, chosen or None


def load(text: str) -> tuple[Any, DatasetName]:
    """The builder's class in the file, and the name that its set has: for a process that prepares it and ends.

    Raises DataError when the file cannot be loaded, or does not define one builder.
    """
    import tensorflow_datasets as tfds

    path, chosen = split(text)
    module = _module(text, path)
    classes: dict[str, Any] = {
        name: kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, tfds.core.DatasetBuilder) and kind.__module__ == module.__name__
    }
    # A base of others does not count, and one whose method is forgotten is told so when it is made.
    classes = {name: kind for name, kind in classes.items() if not inspect.isabstract(kind)} or classes
    if chosen is not None and chosen not in classes:
        raise DataError(f"data set {text}: {path} has no builder {chosen}; it has {', '.join(classes) or 'none'}")
    if len(classes) != 1 and chosen is None:
        told = (
            f"{len(classes)} builders ({', '.join(classes)}): name one as {path.name}:CLASS"
            if classes
            else "no builder"
        )
        raise DataError(
            f"data set {text}: {path} defines {told}; it needs a subclass of tfds.core.GeneratorBasedBuilder"
        )
    builder_class = classes[chosen or next(iter(classes))]
    configs = builder_class.builder_configs
    config = builder_class.default_builder_config.name if configs else None
    return builder_class, DatasetName(name=builder_class.name, config=config)


def _module(text: str, path: Path) -> Any:
    """The file run as a module of its own name; it may import its siblings."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"data set {text}: {path} cannot be loaded ({type(error).__name__}: {reason})") from error
    return module


def record(path: Path, text: str) -> None:
    """Note in the prepared folder `path` which code made it."""
    (path / CODE).write_text(f"{_digest(text)}  {split(text)[0].name}\n")


def changed(path: Path, text: str) -> bool:
    """Whether the folder `path` was prepared by other code than the file has now; False where that is not known."""
    try:
        return (path / CODE).read_text().split()[0] != _digest(text)
    except (OSError, IndexError):
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(split(text)[0].read_bytes()).hexdigest()
