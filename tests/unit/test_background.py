"""Work in a thread: one piece at a time, and no failure goes unseen."""

from __future__ import annotations

import threading

import pytest

from trainbox.background import Background


def test_one_piece_is_under_way_at_a_time():
    """The next one begins after the one before has ended."""
    done, first_may_end = [], threading.Event()
    background = Background()
    background.start(lambda: (first_may_end.wait(10), done.append(1)))
    assert done == []
    threading.Timer(0.05, first_may_end.set).start()
    background.start(lambda: done.append(len(done) + 1))
    background.wait()
    assert done == [1, 2]


def test_a_failure_is_raised_once_to_whoever_asks_next():
    """By `check` only when the work has ended, by `wait` and `start` at its end."""

    def fail():
        assert may_fail.wait(10)
        raise OSError("no room")

    for ask in (Background.wait, lambda background: background.start(pytest.fail)):
        may_fail = threading.Event()
        background = Background()
        background.start(fail)
        background.check()
        may_fail.set()
        with pytest.raises(OSError, match=r"^no room$"):
            ask(background)
        background.check()
        background.wait()


def test_a_check_tells_of_work_that_has_failed():
    """Without anybody waiting for it."""
    background = Background()
    background.start(lambda: 1 / 0)
    background._thread.join()
    with pytest.raises(ZeroDivisionError):
        background.check()
