"""The benchmark still runs on the loop and the model as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "against_keras.py"


@pytest.mark.parametrize("engine", ["trainbox", "keras"])
def test_each_engine_takes_its_turns(engine):
    """One line with a rate for each line that asks for a turn."""
    command = [sys.executable, BENCHMARK, "--engine", engine, "--layout", "2", "--examples", "19200"]
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, input="turn\nturn\n", capture_output=True, text=True, env=environ, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rates = [float(line) for line in done.stdout.splitlines()]
    assert len(rates) == 2
    assert min(rates) > 0
