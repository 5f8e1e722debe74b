"""Signals that ask a run to stop: it saves and ends with 128 + the signal's number.

SIGTERM comes from `docker stop` and Slurm, SIGUSR1 from Slurm's `--signal`, SIGINT from the keyboard. Slurm sends its
signals twice, so one that comes within two seconds of the first is the same request.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType

from trainbox.errors import InterruptedRunError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
SAME_REQUEST_SECONDS = 2.0
GRACE_SECONDS = 8.0


class StopRequest:
    """Whether a signal asked this run to stop.

    Python runs a signal's handler only when the main thread is back in the interpreter. A thread therefore listens to
    the signals' wake-up descriptor, and ends the process if nobody answered the request within `GRACE_SECONDS`: a
    compilation or a hung all-reduce does not outlive the signal. What had been saved is whole, as it always is.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._first = 0.0
        self._answered = threading.Event()

    def install(self) -> None:
        """Take the signals over, in the main thread, after the strategy is built (some strategies replace handlers)."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._handle)
        threading.Thread(target=self._watch, args=(reader,), name="stop-watchdog", daemon=True).start()

    def answer(self) -> None:
        """Say that the request was seen and is being followed: saving may take its time."""
        self._answered.set()

    def check(self) -> None:
        """Raise InterruptedRunError if a stop was requested; nothing is saved here."""
        if self.signum is not None:
            self.answer()
            raise InterruptedRunError(f"stopped by {signal.Signals(self.signum).name}", signum=self.signum)

    def follow(self, signum: int) -> None:
        """Stop because another worker was asked to by this signal."""
        if self.signum is None:
            self.signum, self._first = signum, time.monotonic()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self._take(signum)

    def _take(self, signum: int) -> None:
        now = time.monotonic()
        if self.signum is None:
            self.signum, self._first = signum, now
        elif now - self._first >= SAME_REQUEST_SECONDS:
            self._end("asked twice")

    def _watch(self, reader: int) -> None:
        while True:
            waiting = self.signum is not None and not self._answered.is_set()
            left = max(self._first + GRACE_SECONDS - time.monotonic(), 0.0) if waiting else None
            if select.select([reader], [], [], left)[0]:
                for number in os.read(reader, 64):
                    if number in SIGNALS:
                        self._take(number)
            elif self.signum is not None and not self._answered.is_set():
                self._end(f"no answer in {GRACE_SECONDS:g} s")

    def _end(self, why: str) -> None:
        """End now, wherever the main thread is, with the line that nobody else can say any more."""
        assert self.signum is not None
        name = signal.Signals(self.signum).name
        line = f"trainbox: ended by {name} ({why}); the same command goes on from the last checkpoint\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
        os._exit(128 + self.signum)
