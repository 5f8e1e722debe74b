"""Mirrored replicas, towers, a split batch and one device: one trainer, one set of numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SHARDS = 4
# Everything that a strategy must carry: moving statistics, dropout, penalties, clipping, an average of the weights,
# augmentation, mixup, weights of classes, a last batch of one row; and the loss scale of float16 with steps that are
# skipped.
CASES = ("clothes", "float16-overflow")
STRATEGIES = ("mirrored", "towers", "batch-split")
LEGACY = Path(__file__).with_name("legacy_worker.py")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("replicas", [2, 4])
def test_every_strategy_reaches_the_weights_of_one_device(layout, strategy, replicas):
    """After two epochs, to 1e-6; so is the evaluation."""
    one = layout(1, SHARDS, "fast", "one", "clothes")["clothes"]
    other = layout(replicas, SHARDS, "fast", strategy, "clothes")["clothes"]
    assert np.abs(np.subtract(other["weights"], one["weights"])).max() < 1e-6
    assert other["evaluation"] == pytest.approx(one["evaluation"], rel=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_every_strategy_reaches_the_bits_of_one_device(layout, strategy, replicas):
    """With --reproducible: variables, the statistics and the fingerprint of every step, and the evaluation."""
    one = layout(1, SHARDS, "reproducible", "one", *CASES)
    other = layout(replicas, SHARDS, "reproducible", strategy, *CASES)
    for case in CASES:
        for what in ("digest", "statistics", "taken", "bits", "evaluation"):
            assert other[case][what] == one[case][what], (case, what)
    assert False in one["float16-overflow"]["taken"]
    assert len(one["clothes"]["unchanged"]) < 5


def test_multi_gpu_model_on_four_logical_cpus(tmp_path):
    """Old scripts: same predictions, also of odd and tiny batches; the model itself is trained, and is saved."""
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, str(LEGACY), str(tmp_path)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["loaded before it was asked for"] == []
    assert found["warning"] == [
        "DeprecationWarning",
        "multi_gpu_model is for old scripts: use `trainbox train`, which takes all GPUs by itself, or build and "
        "compile the model in the scope of tf.distribute.MirroredStrategy()",
    ]
    assert len(found["predictions"]) == 12
    assert max(found["predictions"].values()) <= 1e-6
    assert found["of several inputs"] == {"sum": 0.0, "one": 0.0}
    # Gradient of the mean over the whole batch, activity penalties included: as Keras trains the model alone.
    assert found["trained"] <= 1e-6
    assert found["moved"] > 1e-3
    assert found["normalization moved and is finite"]
    assert found["saved"] == ["Sequential", 0.0]
    assert found["refused"] == {
        "8": "multi_gpu_model(gpus=8): TensorFlow sees 4 logical CPUs; give a number from 1 to 4, or a list of numbers "
        "from 0 to 3",
        "[0, 4]": "multi_gpu_model(gpus=[0, 4]): TensorFlow sees 4 logical CPUs; give a number from 1 to 4, or a list "
        "of numbers from 0 to 3",
        "0": "multi_gpu_model(gpus=0): TensorFlow sees 4 logical CPUs; give a number from 1 to 4, or a list of numbers "
        "from 0 to 3",
    }
