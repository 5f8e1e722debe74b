"""Contact among the workers of a run, from before TensorFlow is loaded until the end (no TensorFlow).

TensorFlow waits for ever for a worker that never arrives, and names nobody when one is lost. So the workers meet first
(`meet`): each connects to the chief, on the chief's own address, and hands it what the others should know. Nobody goes
on before all are there. The connections stay open, and over them each tells every second that it lives (`Contact`).
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainbox.errors import RunFailedError, UsageError

BEAT_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_HELLO_SECONDS = 5.0
_GOODBYE_SECONDS = 1.0
_LONGEST = 2**20  # bytes of one message


@dataclass
class Line:
    """One connection, on which messages are JSON, one a line."""

    stream: socket.socket
    peer: int
    heard: float = field(default_factory=time.monotonic)
    gone: bool = False
    _rest: bytes = b""

    def send(self, **message: Any) -> None:
        """Send one message; whether it arrives is seen by what comes back."""
        with contextlib.suppress(OSError):
            self.stream.sendall(json.dumps(message).encode() + b"\n")

    def hears(self, seconds: float) -> bool:
        """Whether anything came within `seconds`, other than the end; what it was is dropped."""
        try:
            self.stream.settimeout(seconds)
            return bool(self.stream.recv(65536))
        except (OSError, ValueError):
            return False

    def wait(self, seconds: float) -> dict[str, Any] | None:
        """The first message, or None if it does not come, or nothing that is one, within `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.stream.settimeout(left)
            messages = self.receive()
            if messages is None:
                return None
            if messages:
                return messages[0] if isinstance(messages[0], dict) else None
        return None

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have come, after the stream was ready; None when the peer has closed it."""
        try:
            told = self.stream.recv(65536)
        except (BlockingIOError, TimeoutError):
            return []
        except OSError:
            return None
        if not told or len(self._rest) > _LONGEST:
            return None
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + told).split(b"\n")
        try:
            return [json.loads(line) for line in lines if line]
        except ValueError:
            return None


def meet(
    addresses: Sequence[str], index: int, *, told: dict[str, Any], seconds: float
) -> tuple[list[dict[str, Any]], list[Line]]:
    """What each of the workers at `addresses` (host:port) told, this one as number `index`; and the open connections.

    The chief is number 0 and has a connection to each of the others, which have one to the chief.

    Raises:
        RunFailedError: the own address cannot be listened on, or a worker has not arrived within `seconds`.
        UsageError: the workers do not have the same addresses.
    """
    with _listen(addresses[index]) as listening:
        if index == 0:
            return _receive_all(listening, addresses, told, seconds)
    return _join(addresses, index, told, seconds)


def split(address: str) -> tuple[str, int]:
    """Host and port of host:port; an IPv6 address stands in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _listen(address: str) -> socket.socket:
    host, port = split(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    stream = socket.socket(family)
    # TensorFlow listens here next, while connections of the meeting are still open.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        stream.bind(("::" if family == socket.AF_INET6 else "", port))
        stream.listen(128)
    except OSError as error:
        stream.close()
        raise RunFailedError(
            f"worker {address} cannot listen on its port: {error.strerror}; end what holds port {port}, or name another"
        ) from error
    return stream


def _receive_all(
    listening: socket.socket, addresses: Sequence[str], told: dict[str, Any], seconds: float
) -> tuple[list[dict[str, Any]], list[Line]]:
    deadline = time.monotonic() + seconds
    arrived: dict[int, tuple[Line, dict[str, Any]]] = {}
    while len(arrived) < len(addresses) - 1:
        listening.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            stream, _ = listening.accept()
        except TimeoutError:
            missing = [a for number, a in enumerate(addresses) if number and number not in arrived]
            for line, _ in arrived.values():
                line.send(missing=missing, seconds=seconds)
            raise _missing(missing, seconds) from None
        hello = _hello(stream)
        if hello is None:
            stream.close()  # whoever this is, it is no worker
        elif hello["addresses"] != list(addresses) or hello["index"] in arrived:
            line = Line(stream, hello["index"])
            line.send(refused=f"the chief has the workers {', '.join(addresses)}")
            raise _strangers(hello, addresses)
        else:
            arrived[hello["index"]] = (Line(stream, hello["index"]), hello["told"])
    everything = [told, *(arrived[number][1] for number in range(1, len(addresses)))]
    lines = [line for line, _ in arrived.values()]
    for line in lines:
        line.send(everything=everything)
    return everything, lines


def _hello(stream: socket.socket) -> dict[str, Any] | None:
    first = Line(stream, -1).wait(_HELLO_SECONDS)
    return first if first and {"addresses", "index", "told"} <= first.keys() else None


def _join(
    addresses: Sequence[str], index: int, told: dict[str, Any], seconds: float
) -> tuple[list[dict[str, Any]], list[Line]]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            stream = socket.create_connection(split(addresses[0]), timeout=min(5.0, seconds))
        except OSError:
            time.sleep(_AGAIN_SECONDS)
            continue
        line = Line(stream, 0)
        line.send(addresses=list(addresses), index=index, told=told)
        # The chief waits for the others as long, and tells when it gives up.
        if message := line.wait(deadline - time.monotonic() + _HELLO_SECONDS):
            return _answered(message, line)
        stream.close()
        time.sleep(_AGAIN_SECONDS)  # it was TensorFlow's own server of an earlier run, or the chief was ended
    raise _missing([addresses[0]], seconds)


def _answered(message: dict[str, Any], line: Line) -> tuple[list[dict[str, Any]], list[Line]]:
    if "missing" in message:
        raise _missing(message["missing"], message["seconds"])
    if "refused" in message:
        raise UsageError(f"this worker does not belong to the run: {message['refused']}; give all the same list")
    return message["everything"], [line]


def _missing(addresses: Sequence[str], seconds: float) -> RunFailedError:
    several = "workers have" if len(addresses) > 1 else "worker has"
    return RunFailedError(
        f"the {several} not arrived within {seconds:g} s: {', '.join(addresses)}; start all of them, see that their "
        "hosts can reach one another, or give them longer with --worker-start-seconds"
    )


def _strangers(hello: dict[str, Any], addresses: Sequence[str]) -> UsageError:
    return UsageError(
        f"a worker of number {hello['index']} came with the list {', '.join(map(str, hello['addresses']))} where "
        f"{', '.join(addresses)} is the run's: give all workers the same list, and each its own number"
    )


class Contact:
    """Tells the others that this worker lives, and `on_lost` of the first that does not, in one line.

    A worker is lost when its connection drops, when it has been silent for `seconds`, or when it ended in an error. The
    chief sees all of them, the others see the chief, who tells them whom it has lost. A frozen process is silent.
    """

    def __init__(
        self, addresses: Sequence[str], lines: Sequence[Line], *, seconds: float, on_lost: Callable[[str], None]
    ) -> None:
        self._addresses, self._lines = addresses, list(lines)
        self._seconds, self._on_lost = seconds, on_lost
        self._over = threading.Event()
        for line in self._lines:
            line.heard = time.monotonic()
            line.stream.settimeout(BEAT_SECONDS)
        self._thread = threading.Thread(target=self._run, name="contact", daemon=True)
        self._thread.start()

    def end(self, *, code: int = 0, why: str = "") -> None:
        """Say that this worker ends, with its exit code; whoever is lost from now on is nobody's business."""
        self._over.set()
        for line in self._lines:
            line.send(bye=code, why=why)
            with contextlib.suppress(OSError):
                line.stream.shutdown(socket.SHUT_WR)
        # A stream that is closed with something unread in it is reset, and the peer may lose the last words unread.
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for line in self._lines:
            while (left := deadline - time.monotonic()) > 0 and line.hears(left):
                pass
            line.stream.close()

    def _run(self) -> None:
        # An end at any moment, the first one included, closes the streams under this thread.
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            for line in self._lines:
                selector.register(line.stream, selectors.EVENT_READ, line)
            due = 0.0
            while not self._over.is_set() and not all(line.gone for line in self._lines):
                if time.monotonic() >= due:
                    due = time.monotonic() + BEAT_SECONDS
                    for line in self._lines:
                        line.send(beat=1)
                ready = selector.select(BEAT_SECONDS / 2)
                lost = self._look([key.data for key, _ in ready], selector)
                if lost and not self._over.is_set():
                    self._over.set()
                    for line in self._lines:
                        line.send(lost=lost)
                    self._on_lost(lost)

    def _look(self, ready: Sequence[Line], selector: selectors.BaseSelector) -> str | None:
        """Whom of the peers this worker has lost and why, if any."""
        for line in ready:
            messages = line.receive()
            if messages is None:
                return f"worker {self._addresses[line.peer]} ended without a word"
            for message in messages:
                if "lost" in message:
                    return str(message["lost"])
                if "bye" in message:
                    line.gone = True
                    selector.unregister(line.stream)
                    with contextlib.suppress(OSError):
                        line.stream.shutdown(socket.SHUT_WR)  # so that it need not wait for more
                    if message["bye"] and message["bye"] < 128:
                        return f"worker {self._addresses[line.peer]} ended with {message['bye']}: {message['why']}"
        silent = [line for line in self._lines if not line.gone and time.monotonic() - line.heard > self._seconds]
        if silent:
            return f"worker {self._addresses[silent[0].peer]} has been silent for {self._seconds:g} s"
        return None
