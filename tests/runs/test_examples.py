"""Runs whose examples are augmented, mixed, normalised and weighted, from their words to what is made of them later."""

from __future__ import annotations

import json

import pytest

AUGMENT = "flip,flip-vertical,crop:1:zeros,rotate:15,colour:0.3"
WORDS = ("train", "--reproducible", "--epochs", "2", "--batch-size", "100", "--no-tensorboard")
FILE = f"""
augment = {json.dumps(AUGMENT.split(","))}
normalise = "standard"
class_weights = "balanced"
"""
COUNTS = (142, 146, 142, 146, 145, 146, 145, 143, 139, 144)


@pytest.fixture(scope="module")
def made(place):
    """A run on one device with all of it from flags."""
    words = ("--augment", AUGMENT, "--cutmix", "0.5", "--normalise", "standard", "--class-weights", "balanced")
    command = place.trainbox(*WORDS, *words, "--run", "made")
    assert (command.ended, command.err) == (0, "")
    return place.run("made")


def test_the_manifest_has_the_numbers_of_the_training_rows(made):
    """Of the 1,438 digits that are trained on: rows / (10 · count) for each class, mean and variance of the pixels."""
    manifest = json.loads((made.path / "manifest.json").read_text())
    assert manifest["examples"] == {
        "mean": [0.30582244198096487],
        "variance": [0.14167592552267452],
        "class_weights": {str(number): 1438 / (10 * count) for number, count in enumerate(COUNTS)},
    }
    assert sum(COUNTS) == 1438


def test_four_devices_have_the_same_bits_from_other_sources(place, made):
    """A file and the environment say what flags said."""
    (place.folder / "examples.toml").write_text(FILE)
    words = (*WORDS, "--config", "examples.toml", "--logical-devices", "4", "--run", "other")
    command = place.trainbox(*words, TRAINBOX_CUTMIX="0.5")
    assert (command.ended, command.err) == (0, "")
    assert place.run("other").same == made.same


def test_a_run_is_evaluated_and_exported_as_it_was_trained(place, made):
    """Evaluation changes no image, and measures what the training rows were once more."""
    result = made.result
    evaluated = place.trainbox("evaluate", "made", "--json")
    assert evaluated.ended == 0, evaluated.err
    told = json.loads(evaluated.out)
    assert (told["loss"], told["accuracy"]) == (result["test/loss"], result["test/accuracy"])
    exported = place.trainbox("export", "made", "--json")
    assert exported.ended == 0, exported.err
    assert (made.path / "export" / "model.keras").is_file()


def test_other_examples_are_another_run(place, made):
    """What decides a result must be said as it was."""
    command = place.trainbox(*WORDS, "--augment", "flip", "--run", "made", "--epochs", "3")
    assert command.ended == 2
    assert f"--augment was {AUGMENT} and is flip" in command.complaint
    assert "--cutmix was 0.5 and is None" in command.complaint


def test_a_class_that_is_not_there_is_refused(place):
    """One line, and no run."""
    command = place.trainbox(*WORDS, "--class-weights", "3=2,10=2", "--run", "none")
    assert command.ended == 2
    assert command.complaint == (
        "--class-weights names class 10, and digits/1.0.0 has the classes 0 to 9; name one of these"
    )
    assert not (place.run("none").path / "checkpoints").exists()
