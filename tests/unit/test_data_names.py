"""Names of data sets."""

import pytest

from trainbox.data import names
from trainbox.data.names import DatasetName
from trainbox.errors import DataError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist", DatasetName(name="mnist")),
        ("emnist/balanced", DatasetName(name="emnist", config="balanced")),
        ("mnist:3.0.1", DatasetName(name="mnist", version="3.0.1")),
        ("imagenet2012_corrupted/blur-1.5:3.*.*", DatasetName(
            name="imagenet2012_corrupted", config="blur-1.5", version="3.*.*")),
    ],
)  # fmt: skip
def test_a_name_has_a_configuration_and_a_version(text: str, expected: DatasetName) -> None:
    """A name is taken apart into its three parts, and put together again as it was."""
    assert names.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "MNIST", "../mnist", "mnist/..", "mnist/.config", "mnist:3", "a b", "mnist/a/b"])
def test_what_is_no_name_is_refused(text: str) -> None:
    """A text that is no name, above all one that is a path, is refused as it was given."""
    with pytest.raises(DataError) as refusal:
        names.parse(text)
    assert str(refusal.value) == (
        f"{text!r} is not the name of a data set: names are written like mnist, emnist/balanced or mnist:3.0.1"
    )


@pytest.mark.parametrize(
    ("asked", "given", "accepted"),
    [(None, "3.0.1", True), ("3.0.1", "3.0.1", True), ("3.*.*", "3.1.0", True), ("3.*.*", "4.1.0", False)],
)
def test_a_star_stands_for_any_number(asked: str | None, given: str, accepted: bool) -> None:
    """A version is accepted number by number."""
    assert DatasetName(name="mnist", version=asked).accepts(given) is accepted


def test_the_three_nearest_are_named() -> None:
    """The nearest come first, and there are three of them however far away they are."""
    assert names.nearest("mnistt", ["coco", "kmnist", "mnist", "emnist"]) == "mnist, kmnist, emnist"
    assert names.nearest("zzz", ["coco", "mnist", "tao"]).count(", ") == 2
