"""Downloads that end: TFDS left to itself tries an unreachable source for over three minutes.

TFDS has no setting for this, so `bound` replaces functions of its downloader. It is for the process that prepares
one data set and then ends (`trainbox.data.preparation`); nothing is put back.
"""

from __future__ import annotations

import functools
import shutil
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RETRIES = 3  # TFDS has 10, with waits that double each time
CONNECT_SECONDS = 5.0
STALL_SECONDS = 60.0  # without a byte
REACH_SECONDS = 3.0


class NetworkNeededError(Exception):
    """`url` must be fetched and cannot be; the message says why."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(reason)
        self.url = url


def bound(*, offline: bool, unfinished: Path) -> None:
    """Make TFDS ask no source that cannot be reached, and none at all when `offline`.

    What needs the network is told by a NetworkNeededError at once. The folders of downloads are noted, one a line, in
    the file `unfinished`, so that a later process can remove what a killed one left (`remove_unfinished`).
    """
    from tensorflow_datasets.core.download import downloader

    begin, fetch = downloader._Downloader.download, downloader._Downloader._sync_download
    lock = threading.Lock()  # downloads run in many threads

    # Noted before any of them runs: when the first one fails, others may not have begun.
    def noted_begin(self: Any, url: str, destination_path: Any, verify: bool = True) -> Any:
        with unfinished.open("a") as notes:
            notes.write(f"{destination_path}\n")
        return begin(self, url, destination_path, verify)

    def bounded_fetch(self: Any, url: str, destination_path: Any, verify: bool = True) -> Any:
        with lock:
            reason = "--offline is set" if offline else unreachable(*_endpoint(url))
        if reason:
            raise NetworkNeededError(url, reason)
        return fetch(self, url, destination_path, verify)

    downloader._Downloader.download = noted_begin
    downloader._Downloader._sync_download = bounded_fetch
    downloader._open_url = functools.partial(downloader._open_url, timeout=(CONNECT_SECONDS, STALL_SECONDS))
    downloader.MAX_RETRIES = RETRIES
    socket.setdefaulttimeout(STALL_SECONDS)  # for FTP, which has no other


def remove_unfinished(notes: Path) -> None:
    """Remove the folders of downloads that never ended, as `bound` noted them; finished ones have been moved away."""
    if notes.is_file():
        for line in notes.read_text().splitlines():
            shutil.rmtree(line, ignore_errors=True)


@functools.cache
def unreachable(host: str, port: int) -> str | None:
    """Why nothing answers at `host`:`port`, or None if something does; asked once, for `REACH_SECONDS` at most."""
    outcome: list[str | None] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=REACH_SECONDS).close()
            outcome.append(None)
        except TimeoutError:
            pass
        except OSError as error:
            outcome.append(f"{host} cannot be reached ({error.strerror or error})")

    # In a thread of its own, because the look-up of a name has no time limit.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    return outcome[0] if outcome else f"{host} did not answer in {REACH_SECONDS:.0f} s"


def _endpoint(url: str) -> tuple[str, int]:
    """Host and port that a download of `url` connects to first: those of its proxy, if one is set."""
    import requests

    parts = urlsplit(url)
    if parts.scheme == "gs":
        return "storage.googleapis.com", 443
    proxy = requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url, no_proxy=None))
    if proxy:
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    ports = {"http": 80, "https": 443, "ftp": 21}
    return parts.hostname or "", parts.port or ports.get(parts.scheme, 443)
