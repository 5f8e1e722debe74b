"""What a run's words make of its examples, and what is refused."""

from dataclasses import dataclass

import numpy as np
import pytest

from trainbox.config import RunConfig
from trainbox.data.pipeline import Split
from trainbox.errors import UsageError
from trainbox.jobs import examples
from trainbox.practice import Practice


@dataclass(frozen=True, kw_only=True)
class Info:
    """What is asked of a data set here."""

    full_name: str = "clothes/1.0.0"
    num_classes: int | None = 4


IMAGES = Split(
    inputs=np.arange(5 * 8 * 9 * 3, dtype=np.uint16).reshape(5, 8, 9, 3).astype(np.uint8),
    labels=np.int32([0, 0, 1, 3, 3]),
    rows=np.int32([4, 0, 1]),
)
NUMBERS = Split(inputs=np.zeros((4, 13), np.float32), labels=np.float32([1, 2, 3, 4]))
FLAT = "needs images, and the inputs of clothes/1.0.0 are float32 of shape (13,); leave it out"
REFUSED = [
    ({"augment": "flip"}, NUMBERS, 4, f"--augment flip {FLAT}"),
    ({"mixup": 0.2}, NUMBERS, 4, f"--mixup 0.2 {FLAT}"),
    ({"cutmix": 1.0}, NUMBERS, 4, f"--cutmix 1.0 {FLAT}"),
    ({"normalise": "standard"}, NUMBERS, 4, f"--normalise standard {FLAT}"),
    (
        {"augment": "crop:8"},
        IMAGES,
        4,
        "--augment crop:8 is too far for images of 8×9; give at most crop:7",
    ),
    (
        {"class_weights": "0=1,4=2"},
        IMAGES,
        4,
        "--class-weights names class 4, and clothes/1.0.0 has the classes 0 to 3; name one of these",
    ),
    (
        {"class_weights": "balanced"},
        NUMBERS,
        None,
        "--class-weights balanced needs classes, and the label of clothes/1.0.0 is a number; leave it out",
    ),
]


@pytest.mark.parametrize(("words", "rows", "classes", "message"), REFUSED)
def test_what_cannot_be_done_to_these_rows_is_refused(words, rows, classes, message):
    """In one line that names the option and what there is."""
    config, info = RunConfig(**words), Info(num_classes=classes)
    refuse = examples.normalisation if config.normalise != "none" else examples.practice
    with pytest.raises(UsageError) as refused:
        refuse(config, info, rows)
    assert str(refused.value) == message


def test_words_become_what_training_does():
    """Only the rows that are trained on count."""
    made = examples.practice(RunConfig(class_weights="balanced"), Info(), IMAGES)
    assert made == Practice(class_weights=(3 / (2 * 2), 1.0, 1.0, 3 / (2 * 1)))
    made = examples.practice(RunConfig(class_weights="2=0.5, 0=3", mixup=0.2), Info(), IMAGES)
    assert made == Practice(class_weights=(3.0, 1.0, 0.5, 1.0), mixup=0.2)
    assert examples.practice(RunConfig(), Info(), NUMBERS) is None
    assert examples.normalisation(RunConfig(), Info(), NUMBERS) is None


def test_inputs_lose_the_mean_and_the_deviation_of_the_rows():
    """By channel: afterwards their mean is 0 and their variance 1."""
    made = examples.normalisation(RunConfig(normalise="standard"), Info(), IMAGES)
    used = IMAGES.inputs[IMAGES.rows].astype(np.float32) / 255
    inputs = made(used).numpy().astype(np.float64)
    assert inputs.mean(axis=(0, 1, 2)) == pytest.approx(np.zeros(3), abs=1e-6)
    assert inputs.var(axis=(0, 1, 2)) == pytest.approx(np.ones(3), abs=1e-6)
