"""Signals, in real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys, time
from trainbox import errors, stopping
stop = stopping.StopRequest()
stop.install()
print("ready", flush=True)
try:
    {work}
except errors.InterruptedRunError as error:
    print(error, flush=True)
    {then}
    sys.exit(error.exit_code)
"""
POLITE = "\n    while True:\n        time.sleep(0.01)\n        stop.check()"


def started(work, then="pass"):
    """The program, past the point where its handlers are in place."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work=work, then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1", "SIGINT"])
def test_a_signal_ends_with_its_code(name):
    """128 + its number, after the loop has seen it."""
    process = started(POLITE)
    process.send_signal(getattr(signal, name))
    assert process.communicate(timeout=10)[0] == f"stopped by {name}\n"
    assert process.returncode == 128 + getattr(signal, name)


def test_a_signal_that_comes_twice_is_one_request():
    """Slurm sends its signals twice: saving is not cut short by the second."""
    process = started(POLITE, then="time.sleep(1); print('saved', flush=True)")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=10)[0] == "stopped by SIGTERM\nsaved\n"
    assert process.returncode == 143


def test_a_second_request_ends_at_once():
    """Two seconds after the first, a signal means that the user will not wait for the saving."""
    process = started(POLITE, then="time.sleep(60); print('saved', flush=True)")
    process.send_signal(signal.SIGTERM)
    time.sleep(2.3)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert "saved" not in out
    assert err == "trainbox: ended by SIGTERM (asked twice); the same command goes on from the last checkpoint\n"
    assert process.returncode == 143
    assert time.monotonic() - began < 5


def test_a_stuck_call_does_not_outlive_the_signal():
    """Nobody answers the request, as in a compilation or a hung all-reduce: the process ends all the same."""
    process = started("\n    while True:\n        time.sleep(3600)")
    began = time.monotonic()
    process.send_signal(signal.SIGUSR1)
    err = process.communicate(timeout=20)[1]
    assert err == "trainbox: ended by SIGUSR1 (no answer in 8 s); the same command goes on from the last checkpoint\n"
    assert process.returncode == 138
    assert time.monotonic() - began < 10
