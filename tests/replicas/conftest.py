"""One process for each layout of logical CPUs, started once and shared by the tests."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Results]:
    """`layout(replicas, shards, mode, strategy, *names)` gives the results of every case, or of `names`, on it."""

    @functools.cache
    def run(replicas: int, shards: int | None = None, mode: str = "fast", *more: str) -> Results:
        folder = tmp_path_factory.mktemp(f"layout-{replicas}")
        command = [sys.executable, str(WORKER), str(replicas), str(shards or replicas), mode, str(folder), *more]
        environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads((folder / "results.json").read_text())

    return run
