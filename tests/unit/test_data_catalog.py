"""What TFDS can make, known before anything is fetched."""

from typing import Any

import pytest

from trainbox.data import catalog, names
from trainbox.data.features import choose
from trainbox.data.view import View
from trainbox.errors import DataError


def described(text: str) -> Any:
    """TFDS's own information on the data set `text`, which is nowhere prepared."""
    builder_class, name = catalog.resolve(names.parse(text))
    return catalog.build(builder_class, name, catalog.NOWHERE).info


@pytest.mark.parametrize(
    ("text", "shape", "classes"),
    [
        ("digits", (8, 8, 1), 10),
        ("mnist", (28, 28, 1), 10),
        ("fashion_mnist", (28, 28, 1), 10),
        ("cifar10", (32, 32, 3), 10),
        ("cifar100", (32, 32, 3), 100),
        ("emnist/byclass", (28, 28, 1), 62),
        ("emnist/bymerge", (28, 28, 1), 47),
        ("emnist/balanced", (28, 28, 1), 47),
        ("emnist/letters", (28, 28, 1), 37),
        ("emnist/digits", (28, 28, 1), 10),
        ("emnist/mnist", (28, 28, 1), 10),
    ],
)
def test_shape_and_classes_come_from_tfds(text: str, shape: tuple[int, int, int], classes: int) -> None:
    """Shape and class count are those that the set states; of cifar100's two labels its supervised pair decides."""
    found = choose(described(text), View())
    assert (found.inputs, found.label, found.input_shape, found.num_classes) == (("image",), "label", shape, classes)
    assert (found.kind, found.input_type, found.label_type) == ("image", "uint8", "int32")
    assert found.transposed == text.startswith("emnist/")


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("mnist", "mnist:3.0.1"),
        ("mnist:3.*.*", "mnist:3.0.1"),
        ("emnist", "emnist/byclass:3.1.0"),
        ("emnist/letters", "emnist/letters:3.1.0"),
        ("digits", "digits:1.0.0"),
    ],
)
def test_a_name_is_made_exact(text: str, exact: str) -> None:
    """Configuration and version that were left out are TFDS's defaults."""
    assert str(catalog.resolve(names.parse(text))[1]) == exact


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("mnistt", "unknown data set 'mnistt'; the nearest that TFDS 4.9.10 has: mnist, kmnist, emnist"),
        ("digitz", "unknown data set 'digitz'; the nearest that TFDS 4.9.10 has: digits, spoken_digit, gtzan"),
        ("mnist/big", "data set mnist has no configurations, and 'big' is asked for: leave it out"),
        (
            "emnist/balancd",
            "data set emnist has no configuration 'balancd'; the nearest: balanced, byclass, mnist",
        ),
        (
            "mnist:9.9.9",
            "data set mnist:9.9.9 cannot be prepared: of mnist this TFDS makes version 3.0.1 only; ask for that, "
            "or bring a prepared folder of the other",
        ),
    ],
)
def test_what_tfds_cannot_make_is_told(text: str, line: str) -> None:
    """An unknown name, configuration or version is one line that names the nearest."""
    with pytest.raises(DataError) as refusal:
        catalog.resolve(names.parse(text))
    assert str(refusal.value) == line


def test_a_builder_that_fails_is_told() -> None:
    """An exception of a builder's own code becomes a line with its type and first line."""

    def broken(**words: Any) -> None:
        raise ImportError("no module so\nmore")

    with pytest.raises(DataError) as refusal:
        catalog.build(broken, names.parse("mnist"), catalog.NOWHERE)
    assert str(refusal.value) == "the builder of data set mnist fails (ImportError: no module so)"
