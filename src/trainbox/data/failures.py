"""What goes wrong while a data set is prepared, each in one line for the user."""

from __future__ import annotations

import errno
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

from trainbox.data.downloads import NetworkNeededError
from trainbox.errors import DataError

_CHECKSUM = re.compile(r"checksum='([0-9a-f]{64})'")
_ARTIFACT = re.compile(r"Artifact (\S+), downloaded to (\S+), has wrong checksum")


class Wanted(Protocol):
    """What the user asked for, the folder that it would have, and the data folder."""

    @property
    def asked(self) -> str: ...
    @property
    def wanted(self) -> Path: ...
    @property
    def data_dir(self) -> Path: ...


def explained(error: Exception, *, request: Wanted, builder: Any) -> DataError:
    """The error that tells of `error`, which TFDS or the file system raised while the data set was prepared."""
    if isinstance(error, DataError):
        return error
    if isinstance(error, NetworkNeededError):
        return _not_fetched(error, request)
    if _is_full(error):
        free = shutil.disk_usage(request.data_dir).free // 2**20
        return DataError(
            f"data set {request.asked} is not prepared: the disk of {request.data_dir} is full ({free} MiB free): "
            "make room or name another --data-dir"
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return unwritable(request.asked, request.data_dir, error)
    if type(error).__name__ == "NonMatchingChecksumError":
        return _mismatch(str(error), request)
    if isinstance(error, ModuleNotFoundError):
        return DataError(
            f"data set {request.asked} needs the Python package {error.name!r}, which is not installed: install it"
        )
    reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    if builder is not None and builder.MANUAL_DOWNLOAD_INSTRUCTIONS:
        return by_hand(request, builder, reason=f" ({reason})")
    if type(error).__name__ == "DownloadError" or type(error).__module__.startswith("requests."):
        return DataError(
            f"data set {request.asked} could not be downloaded ({reason}): try again, or put the original files into "
            f"{_manual(request)}"
        )
    return DataError(f"data set {request.asked} could not be prepared in {request.wanted} ({reason}): see --debug")


def unwritable(asked: str, data_dir: Path, error: OSError) -> DataError:
    """The error of a set that is not prepared, in a data folder that may not be written."""
    return DataError(
        f"data set {asked} is not prepared in {data_dir}, and nothing can be written there ({error.strerror}): prepare "
        "it as a user who may, or name another --data-dir"
    )


def by_hand(request: Wanted, builder: Any, *, reason: str = "") -> DataError:
    """The error of a set whose original files the user must fetch."""
    instructions = " ".join(builder.MANUAL_DOWNLOAD_INSTRUCTIONS.split())
    return DataError(
        f"data set {request.asked} needs files fetched by hand into {_manual(request)}{reason}: {instructions}"
    )


def _not_fetched(error: NetworkNeededError, request: Wanted) -> DataError:
    command = f"trainbox data prepare {request.asked} --data-dir DIR"
    return DataError(
        f"data set {request.asked} is not prepared in {request.wanted} and cannot be fetched from {error.url}: {error};"
        f" run '{command}' where there is a network and bring DIR here as {request.data_dir}"
    )


def _mismatch(text: str, request: Wanted) -> DataError:
    artifact, sums = _ARTIFACT.search(text), _CHECKSUM.findall(text)
    if artifact is None or len(sums) != 2:  # another TFDS says it in another way
        return DataError(f"data set {request.asked} could not be prepared: {' '.join(text.split())}")
    return DataError(
        f"data set {request.asked}: {artifact[2]} is not the file that TFDS knows from {artifact[1]}: SHA-256 is "
        f"{sums[1]}, expected {sums[0]}; remove it and put the right one into {_manual(request)}"
    )


def _manual(request: Wanted) -> Path:
    return request.data_dir / "downloads" / "manual"


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return "No space left on device" in str(error) or "Not enough disk space" in str(error)
