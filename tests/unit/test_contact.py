"""Workers that meet, over real sockets, and what becomes of those that do not."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainbox import contact
from trainbox.errors import RunFailedError, UsageError


@pytest.fixture
def addresses():
    """Three addresses whose ports are free."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


def meet_all(addresses, *, seconds=10.0, but=()):
    """What each worker gets out of the meeting: its result or its error; those of `but` stay away."""

    def one(index):
        try:
            return contact.meet(addresses, index, told={"number": index}, seconds=seconds)
        except (RunFailedError, UsageError) as error:
            return error

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, [index for index in range(len(addresses)) if index not in but]))


def test_all_learn_what_all_told(addresses):
    results = meet_all(addresses)
    assert [told for told, _ in results] == [[{"number": 0}, {"number": 1}, {"number": 2}]] * 3
    assert [len(lines) for _, lines in results] == [2, 1, 1]


def test_whoever_does_not_arrive_is_named_by_all(addresses):
    """The chief and the worker that came both name the one that did not, in the time that was given."""
    began = time.monotonic()
    results = meet_all(addresses, seconds=1.0, but=(2,))
    assert time.monotonic() - began < 5
    expected = f"the worker has not arrived within 1 s: {addresses[2]}; start all of them"
    assert [str(error).startswith(expected) for error in results] == [True, True]


def test_a_chief_that_does_not_arrive_is_named(addresses):
    (error, _) = meet_all(addresses, seconds=0.5, but=(0,))
    assert str(error).startswith(f"the worker has not arrived within 0.5 s: {addresses[0]}")


def test_a_port_in_use_is_named(addresses):
    port = int(addresses[0].rpartition(":")[2])
    with socket.create_server(("", port)), pytest.raises(RunFailedError) as error:
        contact.meet(addresses, 0, told={}, seconds=1)
    assert str(error.value) == (
        f"worker {addresses[0]} cannot listen on its port: Address already in use; end what holds port {port}, or name "
        "another"
    )


def test_other_lists_are_refused_on_both_sides(addresses):
    with ThreadPoolExecutor() as pool:
        chief = pool.submit(contact.meet, addresses[:2], 0, told={}, seconds=5)
        other = pool.submit(contact.meet, [addresses[0], addresses[2]], 1, told={}, seconds=5)
        with pytest.raises(UsageError, match="a worker of number 1 came with the list"):
            chief.result()
        with pytest.raises(UsageError, match="this worker does not belong to the run"):
            other.result()


def test_strangers_do_not_keep_workers_from_meeting(addresses):
    """A port scanner, or a browser, that connects first is passed over."""
    pair = addresses[:2]
    with ThreadPoolExecutor() as pool:
        chief = pool.submit(contact.meet, pair, 0, told={"number": 0}, seconds=10)
        while True:
            try:
                stranger = socket.create_connection(contact.split(pair[0]), timeout=1)
                break
            except OSError:
                time.sleep(0.01)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        told, _ = contact.meet(pair, 1, told={"number": 1}, seconds=10)
        assert told == chief.result()[0] == [{"number": 0}, {"number": 1}]


class Lost:
    """Remembers whom a worker has lost."""

    def __init__(self):
        self.why, self.said = None, threading.Event()

    def __call__(self, why):
        self.why = why
        self.said.set()


def in_contact(addresses, *, seconds):
    """The contact of each worker, and what it loses."""
    results = meet_all(addresses)
    lost = [Lost() for _ in addresses]
    made = [
        contact.Contact(addresses, lines, seconds=seconds, on_lost=each)
        for (_, lines), each in zip(results, lost, strict=True)
    ]
    return made, lost, [lines for _, lines in results]


def test_a_worker_that_drops_is_named_by_all_others(addresses):
    _, lost, lines = in_contact(addresses, seconds=30)
    lines[2][0].stream.shutdown(socket.SHUT_RDWR)
    assert all(each.said.wait(5) for each in lost[:2])
    assert {each.why for each in lost[:2]} == {f"worker {addresses[2]} ended without a word"}


def test_an_error_is_told_with_its_words(addresses):
    made, lost, _ = in_contact(addresses, seconds=30)
    made[1].end(code=4, why="no data")
    assert all(lost[index].said.wait(5) for index in (0, 2))
    assert lost[0].why == lost[2].why == f"worker {addresses[1]} ended with 4: no data"
    assert lost[1].why is None


def test_a_good_end_and_a_signal_lose_nobody(addresses):
    made, lost, _ = in_contact(addresses, seconds=30)
    made[1].end()
    made[2].end(code=143, why="stopped by SIGTERM")
    time.sleep(1.5)
    assert [each.why for each in lost] == [None] * 3
    made[0].end()


def test_a_silent_worker_is_lost(addresses):
    """It keeps its connection and says nothing, as a frozen process does."""
    results = meet_all(addresses[:2])
    lost = Lost()
    contact.Contact(addresses[:2], results[0][1], seconds=1.5, on_lost=lost)
    assert lost.said.wait(8)
    assert lost.why == f"worker {addresses[1]} has been silent for 1.5 s"
