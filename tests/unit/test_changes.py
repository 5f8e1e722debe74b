"""The words of --augment and --class-weights."""

import pytest

from trainbox.changes import Change, parse, parse_weights
from trainbox.errors import UsageError

KNOWN = "it takes a list of flip, flip-vertical, crop:P, rotate:DEGREES and colour:S"
REFUSED = {
    "flop": f"--augment has 'flop'; {KNOWN}; did you mean flip?",
    "flip,,crop:1": f"--augment has ''; {KNOWN}",
    "flip:2": f"--augment has 'flip:2'; {KNOWN}",
    "colours:0.1": f"--augment has 'colours:0.1'; {KNOWN}; did you mean colour?",
    "crop": "--augment has 'crop'; behind crop: it takes pixels, a whole number of at least 1",
    "crop:0": "--augment has 'crop:0'; behind crop: it takes pixels, a whole number of at least 1",
    "crop:1.5": "--augment has 'crop:1.5'; behind crop: it takes pixels, a whole number of at least 1",
    "crop:inf": "--augment has 'crop:inf'; behind crop: it takes pixels, a whole number of at least 1",
    "crop:2:ones": "--augment has 'crop:2:ones'; behind crop: it takes pixels, a whole number of at least 1",
    "rotate:181": "--augment has 'rotate:181'; behind rotate: it takes degrees, a number from 0 to 180",
    "rotate:-1": "--augment has 'rotate:-1'; behind rotate: it takes degrees, a number from 0 to 180",
    "rotate:5:zeros": "--augment has 'rotate:5:zeros'; behind rotate: it takes degrees, a number from 0 to 180",
    "colour:nan": "--augment has 'colour:nan'; behind colour: it takes a strength, a number from 0 to 1",
    "colour:x": "--augment has 'colour:x'; behind colour: it takes a strength, a number from 0 to 1",
}
WEIGHTS = "it takes none, balanced, or a list of CLASS=WEIGHT with the number of a class and a weight of at least 0"


def test_a_list_of_changes_keeps_its_order():
    """Numbers behind a colon; a crop may say what its border is."""
    assert parse("flip-vertical, crop:4:zeros,rotate:12.5,colour:0,crop:2,flip") == (
        Change(kind="flip-vertical"),
        Change(kind="crop", amount=4.0, zeros=True),
        Change(kind="rotate", amount=12.5),
        Change(kind="colour", amount=0.0),
        Change(kind="crop", amount=2.0),
        Change(kind="flip"),
    )
    assert parse(None) == ()


@pytest.mark.parametrize("text", REFUSED)
def test_a_change_that_is_none_is_refused_by_name(text):
    """One line with the word, and what it should be."""
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert str(refused.value) == REFUSED[text]


def test_weights_of_classes_are_words_or_numbers():
    """Classes that are not named are not there."""
    assert parse_weights("none") == "none"
    assert parse_weights(" balanced ") == "balanced"
    assert parse_weights("0=1.0, 3=2.5,12=0") == {0: 1.0, 3: 2.5, 12: 0.0}


@pytest.mark.parametrize("word", ["ballanced", "0:1", "a=1", "0=", "0=-1", "0=nan", "0=inf", "-1=2", "0=1=2", ""])
def test_other_weights_are_refused_by_name(word):
    """One line with the word."""
    with pytest.raises(UsageError) as refused:
        parse_weights(f"5=1,{word}")
    assert str(refused.value) == f"--class-weights has {word!r}; {WEIGHTS}"


def test_a_class_has_one_weight():
    """Named twice, it is not known which one is meant; the option is named as the user wrote it."""
    with pytest.raises(UsageError) as refused:
        parse_weights("1=2,1=3", subject="--class-weights (run.toml)")
    assert str(refused.value) == "--class-weights (run.toml) names class 1 twice; give each class one weight"
