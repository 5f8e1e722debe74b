"""A run that is killed, at any moment and as often as one likes, ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import time

import pytest

from trainbox import checkpoint

# Small enough that a start costs little; with a seed of its own in every step and shard.
MODEL = """
import keras
from keras import layers

def build(input_shape, num_classes):
    return keras.Sequential(
        [keras.Input(input_shape), layers.Flatten(), layers.Dropout(0.2), layers.Dense(num_classes)]
    )
"""
# Ends its process by SIGKILL when the writing of a checkpoint comes to the point that the variable names.
KILLING = """
import os, signal
from trainbox import checkpoint, run_folder

def dies(*given):
    os.kill(os.getpid(), signal.SIGKILL)

def half(path, data):
    if "step-" in path.name:
        path.write_bytes(data[: len(data) // 2])
        dies()
    return whole(path, data)

def unsynced(number):
    return dies() if "step-" in os.readlink(f"/proc/self/fd/{number}") else sync(number)

def unnamed(source, target):
    return dies() if "step-" in str(target) else replace(source, target)

whole, sync, replace = run_folder._write_and_sync, os.fsync, os.replace
point = os.environ["POINT"]
if point == "half written":
    run_folder._write_and_sync = half
elif point == "before fsync":
    os.fsync = unsynced
elif point == "before rename":
    os.replace = unnamed
elif point == "before pruning":
    checkpoint.discard_after = dies

def make():
    return []
"""
SMALL = ("--model", "model.py:build", "--optimizer", "sgd", "--momentum", "0.9", "--no-tensorboard")
WORDS = (*SMALL, "--reproducible", "--shards", "4", "--batch-size", "100", "--log-steps", "4", "--keep", "2")
# What changes examples draws from seeds of its own.
EXAMPLES = ("--augment", "flip,crop:1,rotate:10,colour:0.2", "--mixup", "0.2", "--class-weights", "balanced")
KILLS = 50


@pytest.fixture(scope="module", autouse=True)
def own_files(place):
    (place.folder / "model.py").write_text(MODEL)
    (place.folder / "killing.py").write_text(KILLING)


def on(devices):
    return ("--logical-devices", str(devices))


def without_times(lines):
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def test_fifty_kills_at_random_moments_change_no_bit(place):
    """While libraries load, the step is compiled, a block runs or a checkpoint is written; on 1, 2 and 4 devices."""
    words = ("train", *WORDS, "--epochs", "60")
    straight = place.start(*words, "--run", "straight", *on(1))
    draw, run = random.Random(50), place.run("killed")
    for _ in range(KILLS):
        before, early = run.steps, draw.random() < 0.4
        command = place.start(*words, "--run", "killed", "--checkpoint-steps", "4", *on(draw.choice([1, 1, 2, 2, 4])))
        if early:
            command.until(lambda command=command: command.out)
        else:
            command.until(lambda before=before: run.steps != before)
        time.sleep(draw.uniform(0, 1.0 if early else 0.03))
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL, command.err
    assert place.trainbox(*words, "--run", "killed", *on(4)).ended == 0
    assert straight.wait() == 0
    assert run.same == place.run("straight").same
    assert without_times(run.lines) == without_times(place.run("straight").lines)
    assert (run.path / "trace.jsonl").read_bytes() == (place.run("straight").path / "trace.jsonl").read_bytes()


def test_a_kill_while_a_checkpoint_is_written_loses_only_that_one(place):
    """Half written, not synced, not renamed, or not tidied up after: the next start goes on from the last whole one."""
    words = ("train", *WORDS, *EXAMPLES, "--normalise", "standard", "--epochs", "3", "--checkpoint-steps", "4")
    run = place.run("writing")
    for point in ("half written", "before fsync", "before rename", "before pruning"):
        command = place.trainbox(*words, "--run", "writing", "--callbacks", "killing.py:make", POINT=point)
        assert command.ended == -signal.SIGKILL, command.err
        named = point == "before pruning"
        assert [checkpoint.read(path).step for path in run.checkpoints] == ([4] if named else [])
        assert any(run.path.rglob("*.trainbox-tmp")) != named
    last = place.trainbox(*words, "--run", "writing")
    assert "going on from step 4 (0 of 3 epochs done)" in last.out.splitlines()
    assert place.trainbox(*words, "--run", "whole").ended == last.ended == 0
    assert run.same == place.run("whole").same
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == [
        "step-0000000044.safetensors",
        "step-0000000045.safetensors",
    ]


def test_a_run_by_fit_that_was_stopped_is_the_straight_one(place):
    """Inside an epoch, of which nothing is kept: the epoch begins again, to the same bits."""
    words = ("train", *SMALL, "--engine", "fit", "--epochs", "20", "--batch-size", "64")
    straight, run = place.start(*words, "--run", "straight-fit"), place.run("fit")
    stopped = place.start(*words, "--run", "fit").until(lambda: run.steps)
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 143
    assert run.steps[0] < 20 * 23
    assert f"; saved at step {run.steps[0]} (" in stopped.complaint
    assert (place.trainbox(*words, "--run", "fit").ended, straight.wait()) == (0, 0)
    assert run.same == place.run("straight-fit").same
