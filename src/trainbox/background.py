"""Work that need not hold up the loop, one piece at a time, in a thread; its failure is raised to whoever asks next."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """At most one piece of work is under way.

    The process may end in the middle of it: what it does must be whole or nothing, as an atomic write is.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Begin `work`, after the piece before it. Raises what that one failed with."""
        self.wait()
        self._thread = threading.Thread(target=self._do, args=(work,), name="background", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what the last piece failed with, if it has ended; does not wait for it."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Come back when nothing is under way. Raises what the last piece failed with, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
