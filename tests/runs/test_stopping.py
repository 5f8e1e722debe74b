"""Runs that are stopped, killed and gone on with end as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

REPRODUCIBLE = ("--reproducible", "--shards", "4", "--batch-size", "100", "--log-steps", "7")
SCHEDULED = ("--model", "mlp", "--epochs", "40", "--validation-split", "0.2", "--schedule", "cosine", *REPRODUCIBLE)
HALF = ("--model", "mlp", "--precision", "float16", "--optimizer", "rmsprop", "--momentum", "0.9", "--epochs", "4")
ENDS = [(signal.SIGTERM, 143), (signal.SIGUSR1, 138), (signal.SIGINT, 130)]


def on(devices):
    """The words for this number of logical devices."""
    return ("--logical-devices", str(devices))


def beyond(run):
    """A sign that the run has a checkpoint that it has not now."""
    before = run.steps
    return lambda: run.steps != before


def told(run):
    """The line of a run that a signal stopped, with the step that it must name; `{}` is for the signal."""
    step = run.steps[0]
    return rf"stopped by {{}}; saved at step {step} \(\d+ of \d+ epochs done\); the same command goes on from there"


def without_times(lines):
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def test_a_run_stopped_by_every_signal_on_other_devices_is_the_straight_run(place):
    """D3, D4, G4: three signals, each delivered twice, then a kill, on 2, 4, 1 and 2 devices and ended on 4.

    Weights, metrics and their lines are those of a run on one device that nobody stopped, to the bit.
    """
    straight = place.start("train", "--run", "straight", *SCHEDULED, *on(1))
    run = place.run("stopped")
    for (signum, code), devices in zip(ENDS, (2, 4, 1), strict=True):
        command = place.start("train", "--run", "stopped", *SCHEDULED, *on(devices)).until(beyond(run))
        command.send(signum)
        time.sleep(0.05)
        command.send(signum)
        assert command.wait() == code
        assert re.fullmatch(told(run).format(signum.name), command.complaint)
    killed = place.start("train", "--run", "stopped", *SCHEDULED, *on(2)).until(beyond(run))
    killed.send(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    last = place.trainbox("train", "--run", "stopped", *SCHEDULED, *on(4))
    assert (last.ended, last.err, straight.wait(), straight.err) == (0, "", 0, "")
    assert run.same == place.run("straight").same
    assert without_times(run.lines) == without_times(place.run("straight").lines)
    assert all(line["train/examples_per_second"] > 0 for line in run.lines if "train/loss" in line)


def test_a_float16_run_with_dropout_stopped_twice_is_the_straight_run(place):
    """The loss scale, the momentum and the seeds of dropout go on where they were, on two replicas."""
    straight = place.start("train", "--run", "half", *HALF, *on(2))
    run = place.run("halves")
    for signum, code in ENDS[:2]:
        command = place.start("train", "--run", "halves", *HALF, *on(2)).until(beyond(run))
        command.send(signum)
        assert command.wait() == code
    last = place.trainbox("train", "--run", "halves", *HALF, *on(2))
    assert (last.ended, straight.wait()) == (0, 0)
    assert run.same == place.run("half").same


@pytest.mark.parametrize(("signum", "code"), ENDS)
def test_a_signal_while_libraries_load_ends_the_command_soon(place, signum, code):
    """With one line and its code, within ten seconds, before there is a run that could be saved."""
    command = place.start("train", "--run", f"early-{code}", fresh=True)
    command.until(lambda: "data: digits/1.0.0" in command.out)
    began = time.monotonic()
    command.send(signum)
    assert command.wait() == code
    assert time.monotonic() - began < 10
    assert command.complaint == ("interrupted" if signum is signal.SIGINT else f"ended by {signum.name}")


def test_a_signal_while_a_data_set_is_prepared_ends_both_processes(place, tmp_path):
    """The process that prepares ends with the one that asked, and leaves nothing that looks prepared."""
    command = place.start("train", "--run", "preparing", TRAINBOX_DATA_DIR=str(tmp_path))
    command.until(lambda: _preparing(tmp_path))
    began = time.monotonic()
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    assert command.complaint == "ended by SIGTERM"
    while _preparing(tmp_path):
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    assert not list(tmp_path.rglob("dataset_info.json"))


def _preparing(data_dir):
    """Whether there is a process that prepares data sets in `data_dir`."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"trainbox.data.preparation" in words and str(data_dir).encode() in words:
            return True
    return False


def test_a_signal_during_the_first_compilation_ends_with_its_code(place):
    """The first step is saved if it was taken; the same command then begins or goes on."""
    command = place.start("train", "--run", "compiling")
    command.until(lambda: "batch: 64 global" in command.out)
    began = time.monotonic()
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    assert time.monotonic() - began < 10
    steps = place.run("compiling").steps
    expected = told(place.run("compiling")).format("SIGTERM") if steps else ".*nothing to save yet; the same .*again"
    assert re.fullmatch(expected, command.complaint)


def test_a_signal_between_training_and_its_test_tells_what_is_saved(place):
    """Where all epochs are done, the same command tests and ends the run."""
    (place.folder / "ending.py").write_text(
        "import os, signal, keras\n"
        "class Ending(keras.callbacks.Callback):\n"
        "    def on_train_end(self, logs=None):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "def make():\n"
        "    return [Ending()]\n"
    )
    words = ("train", "--run", "ending", "--model", "mlp", "--epochs", "2")
    stopped = place.trainbox(*words, "--callbacks", "ending.py:make")
    assert stopped.ended == 143
    assert stopped.complaint == (
        "stopped by SIGTERM; saved at step 46 (2 of 2 epochs done); the same command goes on from there"
    )
    assert "result" not in json.loads((place.run("ending").path / "manifest.json").read_text())
    assert place.trainbox(*words).ended == 0
    assert place.run("ending").result["test/accuracy"] > 0.5


def test_early_stopping_and_the_best_checkpoint_are_those_of_the_straight_run(place):
    """With the averaged weights validated: one device, and four that were stopped once, end at the same epoch."""
    words = ("--model", "mlp", "--epochs", "60", "--validation-split", "0.2", "--early-stopping", "2", *REPRODUCIBLE)
    words = (*words, "--learning-rate", "0.02", "--ema-momentum", "0.5")
    straight = place.start("train", "--run", "early", *words, *on(1))
    run = place.run("earlier")
    stopped = place.start("train", "--run", "earlier", *words, *on(4)).until(beyond(run))
    stopped.send(signal.SIGTERM)
    assert stopped.wait() == 143
    assert (place.trainbox("train", "--run", "earlier", *words, *on(4)).ended, straight.wait()) == (0, 0)
    same = ("weights", "metrics", "epochs_done", "step", "best_step", "test/loss", "test/accuracy")
    assert [run.result[name] for name in same] == [place.run("early").result[name] for name in same]
    assert run.result["stopped_early"]
    refused = place.trainbox("train", "--run", "earlier", *words, *on(4), "--threads", "4", "--epochs", "61")
    assert refused.ended == 2
    assert "a run that cannot go on like this: --threads was 0 and is 4; say it as it was" in refused.complaint
    assert run.result["best_step"] < run.result["step"]
