"""Shards run one after the other, so many need little more memory than one."""

import os
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("memory_worker.py")


def added(shards):
    """The bytes that training with this many shards of one size adds to the process, on one device."""
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(
        [sys.executable, str(WORKER), str(shards)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_eight_shards_need_no_more_than_a_fifth_more_than_one():
    """Gradient accumulation in a loop: the activations of one shard at a time."""
    one, eight = added(1), added(8)
    assert one > 100 * 2**20, "too little to tell"
    assert eight <= 1.2 * one
