"""Several worker processes compute what one computes: the same bits with --reproducible, and else the same numbers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WORKER = Path(__file__).parent / "worker.py"
SECONDS = 240


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody has."""
    for first in range(20_000 + os.getpid() % 10_000, 32_000, count):
        try:
            for number in range(count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", first + number))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def train(workers: int, devices: int, mode: str) -> list[dict[str, Any]]:
    """What each of the workers, all of them started now, says at its end."""
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    port = free_ports(workers)
    started = [
        subprocess.Popen(
            [sys.executable, WORKER, *map(str, (workers, devices, index, port)), mode],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for index in range(workers)
    ]
    try:
        told = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * workers, told
    return [json.loads(output) for output, _ in told]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """One worker with one device, reproducible."""
    return train(1, 1, "reproducible")[0]


@pytest.mark.parametrize(("workers", "devices"), [(1, 4), (2, 2), (4, 1)])
def test_the_same_bits_on_any_workers(alone, workers, devices):
    """Weights, fingerprint of every step and evaluation are those of one device, and every worker has them."""
    assert train(workers, devices, "reproducible") == [alone] * workers


def test_the_same_numbers_without_reproducible(alone):
    """Two workers with two devices each lose what one device loses, to a few units in the last place."""
    both = train(2, 2, "fast")
    assert both[0] == both[1]
    losses, expected = ([row[0] for row in told["statistics"]] for told in (both[0], alone))
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert both[0]["evaluation"] == pytest.approx(alone["evaluation"], rel=1e-4)
