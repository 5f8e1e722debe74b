"""A run that begins from another one: `--fork`."""

from __future__ import annotations

import json
import shutil

import pytest

from trainbox import checkpoint

SMALL = ("--model", "mlp", "--batch-size", "360", "--log-steps", "3")
OLD = ("train", "--run", "old", *SMALL)


@pytest.fixture(scope="module")
def old(place):
    """A run of two epochs of 4 steps, kept twice: as a fork finds it and as it must stay."""
    assert place.trainbox(*OLD, "--epochs", "2").ended == 0
    shutil.copytree(place.run("old").path, place.folder / "kept")
    return place.run("old")


@pytest.fixture(autouse=True)
def unchanged(place, old):
    """Whatever a fork does, the old run stays as it is, byte for byte."""
    yield
    files = {path.relative_to(old.path): path.read_bytes() for path in old.path.rglob("*") if path.is_file()}
    kept = place.folder / "kept"
    assert files == {path.relative_to(kept): path.read_bytes() for path in kept.rglob("*") if path.is_file()}


def losses(run, *, after=0):
    return [line["train/loss"] for line in run.lines if "train/loss" in line and line["step"] > after]


def test_a_fork_goes_on_from_the_old_run_with_other_options(place, old):
    """With a rate of 0 its weights stay those of the old run, whose lines come first and whose name is recorded."""
    command = place.trainbox(*OLD, "--epochs", "3", "--fork", "still", "--learning-rate", "0")
    assert (command.ended, command.err) == (0, "")
    assert "begins from old at step 8 (2 epochs done)" in command.out.splitlines()
    run = place.run("still")
    assert run.lines[: len(old.lines)] == old.lines
    assert [(line["step"], line["epoch"]) for line in run.lines if "train/loss" in line] == [(4, 1), (8, 2), (12, 3)]
    assert run.result["test/loss"] == old.result["test/loss"]
    fork = {"run": "old", "step": 8, "weights": old.result["weights"]}
    assert json.loads((run.path / "manifest.json").read_text())["fork"] == fork
    assert checkpoint.latest(run.path / "checkpoints", tell=pytest.fail).state["fork"] == fork
    assert run.steps == [12, 8]


def test_a_fork_with_the_same_options_is_the_old_run_gone_on_with(place, old):
    """To the bit; and the same words, said again, go on with the new run."""
    shutil.copytree(old.path, place.run("on").path)
    assert place.trainbox("train", "--run", "on", *SMALL, "--epochs", "4").ended == 0
    assert place.trainbox(*OLD, "--fork", "twin", "--epochs", "3").ended == 0
    again = place.trainbox(*OLD, "--fork", "twin", "--epochs", "4")
    assert (again.ended, again.err) == (0, "")
    assert "going on from step 12 (3 of 4 epochs done)" in again.out.splitlines()
    assert place.run("twin").result["weights"] == place.run("on").result["weights"]
    assert losses(place.run("twin")) == losses(place.run("on"))
    done = place.trainbox(*OLD, "--fork", "twin", "--epochs", "4")
    assert (done.ended, done.out) == (0, "run: twin, in output/twin\nalready complete (4/4)\n")


def test_a_fork_may_have_another_batch_between_two_epochs(place, old):
    """Its epochs have the steps that belong to them; stopped inside one and gone on with, it is the straight one."""
    words = (*OLD[:-2], "--log-steps", "0", "--batch-size", "100", "--epochs", "4", "--keep", "9")
    straight = place.trainbox(*words, "--fork", "smaller")
    assert (straight.ended, straight.err) == (0, "")
    run, again = place.run("smaller"), place.run("again")
    assert [(line["step"], line["epoch"]) for line in run.lines if "train/loss" in line][2:] == [(23, 3), (38, 4)]
    (place.folder / "stopping.py").write_text(
        "import os, signal, keras\n"
        "def make():\n"
        "    return [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs:\n"
        "        batch == 0 and os.kill(os.getpid(), signal.SIGTERM))]\n"
    )
    stopped = place.trainbox(*words, "--fork", "again", "--callbacks", "stopping.py:make")
    assert stopped.ended == 143
    assert again.steps == [9, 8]
    assert place.trainbox(*words, "--fork", "again").ended == 0
    assert again.same == run.same


REFUSED = [
    (
        ("--fork", "x", "--optimizer", "sgd", "--epochs", "3"),
        "--optimizer was adam and is sgd: a fork goes on with the optimizer's state; keep --optimizer adam, or begin "
        "another --run",
    ),
    (
        ("--fork", "x", "--schedule", "cosine", "--epochs", "3"),
        "--schedule was constant and is cosine: a fork goes on with the optimizer's state; keep --schedule constant, "
        "or begin another --run",
    ),
    (
        ("--fork", "x", "--epochs", "2"),
        "output/old has done 2 epochs, and --epochs 2 leaves none; give more --epochs",
    ),
    (
        ("--fork", "x", "--warmup-epochs", "1", "--batch-size", "100", "--epochs", "3"),
        "an epoch had 4 steps and has 15: a learning rate that follows --schedule or --warmup-epochs would go on at "
        "the wrong place; keep the batch and rows, or leave these out",
    ),
    (
        ("--fork", "x", "--model", "cnn", "--epochs", "3"),
        "output/old/checkpoints/step-0000000008.safetensors holds 22 variables and the model with its optimizer has "
        "20; resume with the model and options that the run began with, or name another --run",
    ),
    (("--fork", "old"), "--fork old is the run that it would begin from; choose another name"),
    (("--fork", "a/b"), "--fork is 'a/b'; give a name, and the folder for it with --output-dir"),
    (("--run", "olf", "--fork", "x"), "no run 'olf' in output; did you mean old?"),
]


@pytest.mark.parametrize(("words", "line"), REFUSED)
def test_what_cannot_go_on_from_the_old_run_is_refused(place, words, line):
    """Exit 2, and no folder of a run that has not begun."""
    command = place.trainbox(*OLD, *words)
    assert (command.ended, command.complaint) == (2, line)
    assert not place.run("x").path.exists()


def test_a_fork_needs_a_run_and_a_checkpoint(place):
    """Without --run, or from one that has saved nothing."""
    command = place.trainbox("train", "--fork", "x")
    assert (command.ended, command.complaint) == (
        2,
        "--fork x needs --run, the name of the run that it begins from",
    )
    shutil.copytree(place.run("old").path, place.run("bare").path, ignore=shutil.ignore_patterns("step-*"))
    command = place.trainbox("train", "--run", "bare", "--fork", "x", *SMALL)
    assert (command.ended, command.complaint) == (
        2,
        "output/bare has no checkpoint yet to begin from; train it first",
    )


def test_the_folder_of_another_run_is_not_taken(place):
    """A name that a run has which began elsewhere."""
    shutil.copytree(place.run("old").path, place.run("other").path)
    command = place.trainbox(*OLD, "--fork", "other", "--epochs", "3")
    assert (command.ended, command.complaint) == (
        2,
        "--fork other: output/other holds a run that did not begin from old; choose another",
    )


def test_inside_an_epoch_the_batch_stays(place):
    """A checkpoint of the fifth step of an epoch's four is in the second."""
    run = place.run("inside")
    assert place.trainbox("train", "--run", "inside", *SMALL, "--epochs", "2", "--checkpoint-steps", "5").ended == 0
    run.checkpoints[0].unlink()
    command = place.trainbox("train", "--run", "inside", "--fork", "x", "--batch-size", "99", "--model", "mlp")
    assert (command.ended, command.complaint) == (
        2,
        "output/inside is at step 1 of epoch 2, and batch, training rows and engine can change only between epochs; "
        "let it reach the end of the epoch, or keep them",
    )
    assert place.trainbox("train", "--run", "inside", "--fork", "rate", *SMALL, "--learning-rate", "0.1").ended == 0
