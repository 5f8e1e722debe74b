"""Options that change how a run goes, seen from its folder."""

from __future__ import annotations

import csv
import json

import pytest

OWN = """
import json

import keras
from keras import layers


def net(input_shape, num_classes):
    images = keras.Input(input_shape)
    moved = layers.RandomTranslation(0.1, 0.1)(images)
    features = layers.BatchNormalization()(layers.Conv2D(8, 3, activation="relu")(moved))
    flat = layers.Dropout(0.1)(layers.Flatten()(features))
    return keras.Model(images, layers.Dense(num_classes, activation="softmax", dtype="float32")(flat))


def callbacks(epochs):
    said = [epochs]
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.001 * (epoch + 1)),
        # Stops after the third epoch and puts the weights of the first one back.
        keras.callbacks.EarlyStopping("accuracy", mode="min", patience=2, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint("seen-{epoch}.keras"),
        keras.callbacks.CSVLogger("log.csv"),
        keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: said.append(f"begin {epoch}"),
            on_epoch_end=lambda epoch, logs: said.append(sorted(logs)),
            on_train_end=lambda logs: open("said.json", "w").write(json.dumps(said)),
        ),
    ]
"""


def test_keras_callbacks_are_called_as_by_fit(place):
    """Rates, early stopping, checkpoints, logs and hooks, with the user's functional model in bfloat16.

    The weights that EarlyStopping puts back are those that are tested, saved and evaluated.
    """
    (place.folder / "own.py").write_text(OWN)
    words = ("--model", "own.py:net", "--callbacks", "own.py:callbacks", "--precision", "bfloat16")
    command = place.trainbox("train", "--run", "called", "--epochs", "9", *words)
    assert (command.ended, command.err) == (0, "")
    run = place.run("called")
    assert (run.result["epochs_done"], run.result["stopped_early"]) == (3, True)
    epochs = [line for line in run.lines if "train/loss" in line]
    assert [line["train/learning_rate"] for line in epochs] == pytest.approx([0.001, 0.002, 0.003], rel=1e-6)
    logs = ["accuracy", "learning_rate", "loss"]
    said = json.loads((place.folder / "said.json").read_text())
    assert said == [9, "begin 0", logs, "begin 1", logs, "begin 2", logs]
    with (place.folder / "log.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == [line["train/loss"] for line in epochs]
    assert sorted(path.name for path in place.folder.glob("seen-*")) == ["seen-1.keras", "seen-2.keras", "seen-3.keras"]
    evaluated = json.loads(place.trainbox("evaluate", "called", "--json").out)
    assert evaluated["loss"] == run.result["test/loss"]


def test_early_stopping_keeps_the_best_checkpoint_besides_the_last(place):
    """With one checkpoint to keep and one every four epochs; the best one has the loss that its epoch's line has."""
    words = ("--validation-split", "0.2", "--early-stopping", "2", "--learning-rate", "0.02")
    words = ("train", "--run", "best", "--keep", "1", "--checkpoint-epochs", "4", *words)
    command = place.trainbox(*words, "--epochs", "60")
    assert (command.ended, command.err) == (0, "")
    run = place.run("best")
    losses = {line["step"]: line["validation/loss"] for line in run.lines if "validation/loss" in line}
    best, last = min(losses, key=losses.__getitem__), max(losses)
    assert last - best == 2 * 18
    assert (run.result["best_step"], run.result["step"], run.steps) == (best, last, [last, best])
    again = place.trainbox(*words, "--epochs", "61")
    assert again.out.splitlines()[1:] == [f"already complete: stopped early after {len(losses)} epochs"]
    evaluated = json.loads(place.trainbox("evaluate", "best", "--checkpoint", "best", "--json").out)
    assert evaluated["step"] == best
    assert evaluated["loss"] != run.result["test/loss"]


def test_schedules_reach_the_optimizer(place):
    """Warm-up to the peak within an epoch, then a tenth after each epoch; every step's rate by its number."""
    words = ("--schedule", "step", "--warmup-epochs", "0.5", "--decay-epochs", "1", "--log-steps", "1", "--epochs", "2")
    command = place.trainbox("train", "--run", "rates", *words, "--batch-size", "240", "--learning-rate", "0.01")
    assert (command.ended, command.err) == (0, "")
    rates = [line["interval/learning_rate"] for line in place.run("rates").lines if "interval/loss" in line]
    assert rates == pytest.approx([0.0, 0.01 / 3, 0.02 / 3, 0.01, 0.01, 0.01, *[0.001] * 6], rel=1e-6)


def test_keras_fit_comes_to_the_same(place):
    """`--engine fit` trains on the same rows in the same order: the losses of both engines agree, on two devices."""
    losses = []
    for engine in ("fit", "trainbox"):
        words = ("--engine", engine, "--batch-size", "120", "--epochs", "2", "--logical-devices", "2")
        command = place.trainbox("train", "--run", engine, *words)
        assert (command.ended, command.err) == (0, "")
        losses.append([line["train/loss"] for line in place.run(engine).lines if "train/loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
