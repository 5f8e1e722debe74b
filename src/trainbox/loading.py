"""Importing TensorFlow without the notices that it writes to standard error before it can be told not to."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import sys
from collections.abc import Iterator

_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|.*(oneDNN custom operations are on|cpu_feature_guard"
    rb"|rebuild TensorFlow with the appropriate compiler flags)"
)

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def load_tensorflow() -> None:
    """Import TensorFlow and its Keras, if need be; the environment must be what the run needs (`environment.apply`)."""
    if "tensorflow" not in sys.modules:
        with without_notices(), _without_plots():
            importlib.import_module("tensorflow")
            importlib.import_module("keras")


@contextlib.contextmanager
def _without_plots() -> Iterator[None]:
    """Hide matplotlib, which Keras imports where it can: a second of every start, and font caches in HOME."""
    if "matplotlib" in sys.modules:
        yield
        return
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # so that its import fails as if it were not installed
    try:
        yield
    finally:
        del sys.modules["matplotlib"]


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Keep TensorFlow's notices from standard error, its file descriptor included, and nothing else.

    A process of its own passes the other lines on, so that none is lost where the import ends the whole process, as it
    does on a CPU without AVX.
    """
    reader, writer = os.pipe()
    sys.stderr.flush()
    kept = os.dup(2)
    # An interruption inside the hooks of a fork would be lost: Python only reports what they raise.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    passing_on = os.fork()
    if passing_on == 0:
        os.close(writer)
        _pass_on(reader, kept)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(reader)
    os.dup2(writer, 2)
    os.close(writer)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.waitpid(passing_on, 0)


def _pass_on(reader: int, target: int) -> None:
    """In the process of its own: to the end of `reader`, which comes when the other process has its own again."""
    try:
        # The signals stay blocked here: what ends the other process ends this one too, by the end of the pipe.
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        with os.fdopen(reader, "rb") as lines:
            for line in lines:
                if not _NOTICE.match(line):
                    os.write(target, line)
    finally:
        os._exit(0)
