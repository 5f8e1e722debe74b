"""A data set by its name → prepared in the data folder, and its rows as arrays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

from trainbox.data import folders, names, own, prepared
from trainbox.data.preparation import SEPARATOR
from trainbox.data.prepared import DatasetInfo
from trainbox.data.reading import read
from trainbox.data.view import View
from trainbox.errors import DataError

__all__ = ["DatasetInfo", "prepare", "read"]


Say = Callable[[str], None]


def prepare(
    name: str,
    *,
    data_dir: Path,
    view: View = View(),  # noqa: B008  # frozen
    offline: bool = False,
    say: Say = lambda text: None,
) -> DatasetInfo:
    """The data set `name`, seen as `view` says: `digits`, any set of TFDS (`emnist/balanced`, `mnist:3.0.1`), a folder
    of images by class (`folder:/data/pets`), or the user's own builder (`/code/my_dataset.py`).

    If it lies prepared in `data_dir`, in TFDS's own layout, it is described from there: no network, no writing, and the
    files compared with their recorded SHA-256. Without a version, the highest that is prepared counts. Otherwise a
    process of its own prepares it there, while others that want it wait; `say` gets a line for the user at the start.

    The original files come from the network, or from `data_dir/downloads/manual` under the names that they have at
    their source: put them there and nothing is fetched. Wherever they come from, their SHA-256 must be the one that
    TFDS knows.

    Neither way initialises TensorFlow in this process. Raises DataError, in one line, for everything that a user may
    meet: no such data set, configuration or version; nothing in it that a model can take and predict; no network, or
    `offline`, and not prepared; damaged, unreadable or unwritable files; a full disk.
    """
    data_dir = data_dir.expanduser().absolute()
    path = find(name, data_dir) or _prepared_apart(name, data_dir, view, offline=offline, say=say)
    if own.is_file(name) and own.changed(path, name):
        say(f"note: {name} has changed since it prepared {path}; give the builder another VERSION to prepare anew")
    return prepared.describe(path, name=name, view=view)


def find(name: str, data_dir: Path) -> Path | None:
    """The prepared folder of `name`, or None if there is none, or if only the user's own code could tell."""
    if own.is_file(name):
        return None
    return prepared.find(folders.scan(name).name if name.startswith(folders.PREFIX) else names.parse(name), data_dir)


def _prepared_apart(name: str, data_dir: Path, view: View, *, offline: bool, say: Say) -> Path:
    """Run `trainbox.data.preparation`, hand on what it says, and return the folder that it made."""
    # -P: a file of the user's in the working folder is not to be imported in place of a library.
    command = [sys.executable, "-P", "-m", "trainbox.data.preparation", name, str(data_dir), view.to_json()]
    command += ["--offline"] if offline else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    log: deque[str] = deque(maxlen=50)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env=environment,
        )  # fmt: skip
    except OSError as error:
        raise DataError(
            f"data set {name} could not be prepared: {sys.executable} cannot be started ({error.strerror})"
        ) from error
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith(SEPARATOR):
                    log.extend([line.strip()] if line.strip() else [])
                    continue
                message = json.loads(line[1:])
                if "say" in message:
                    say(message["say"])
                elif "prepared" in message:
                    return Path(message["prepared"])
                else:
                    raise DataError(message["error"]) from RuntimeError(message["traceback"])
        finally:
            process.kill()
    last = log[-1] if log else "it said nothing"
    raise DataError(f"data set {name} could not be prepared: {_ending(process.returncode)} ({last})") from RuntimeError(
        "\n".join(log)
    )


def _ending(status: int) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, perhaps for want of memory"
    return f"its process ended with status {status}"
