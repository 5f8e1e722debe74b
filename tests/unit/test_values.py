"""One value of one option is read, and refused, in the same words wherever it comes from."""

from pathlib import Path

import pytest

from trainbox import values
from trainbox.errors import UsageError


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("epochs", "3", 3),
        ("epochs", " +7\r", 7),
        ("batch_size", " auto\r", "auto"),
        ("seed", "2147483647", 2**31 - 1),
        ("learning_rate", "1e-2", 0.01),
        ("learning_rate", "0", 0.0),
        ("momentum", "0.999", 0.999),
        ("decay_factor", "1", 1.0),
        ("tensorboard", "Off", False),
        ("tensorboard", "1", True),
        ("precision", "bfloat16", "bfloat16"),
        ("dataset", "emnist/balanced", "emnist/balanced"),
        ("data_dir", "/data", Path("/data")),
    ],
)
def test_a_text_becomes_a_value_of_the_options_type(name, text, expected):
    """Numbers, switches, choices and paths are read from text."""
    value = values.from_text(name, text, subject="--x")
    assert (value, type(value)) == (expected, type(expected) if not isinstance(expected, Path) else type(Path()))


REFUSED_TEXTS = [
    ("epochs", "-1", "--x is -1; it must be a whole number, at least 1"),
    ("epochs", "0", "--x is 0; it must be a whole number, at least 1"),
    ("epochs", "3.0", "--x is '3.0'; it must be a whole number, at least 1"),
    ("epochs", "1_000", "--x is '1_000'; it must be a whole number, at least 1"),
    ("epochs", "٣", "--x is '٣'; it must be a whole number, at least 1"),
    ("epochs", "", "--x is empty; it must be a whole number, at least 1"),
    ("epochs", "2147483648", "--x is 2147483648; it must be a whole number, at least 1 and at most 2147483647"),
    ("logical_devices", "65", "--x is 65; it must be a whole number, from 1 to 64"),
    ("learning_rate", "nan", "--x is nan; it must be a number, at least 0"),
    ("learning_rate", "inf", "--x is inf; it must be a number, at least 0"),
    ("clip_norm", "0", "--x is 0.0; it must be a number, above 0"),
    ("momentum", "1", "--x is 1.0; it must be a number, at least 0 and below 1"),
    ("validation_split", "1.5", "--x is 1.5; it must be a number, at least 0 and below 1"),
    ("tensorboard", "maybe", "--x is 'maybe'; it must be true or false"),
    ("optimizer", "adan", "--x is 'adan'; it must be one of sgd, adam, adamw, rmsprop; did you mean adam?"),
    ("precision", "FLOAT32", "--x is 'FLOAT32'; it must be one of float32, bfloat16, float16"),
    ("dataset", " ", "--x is empty; it must be a text"),
    ("data_dir", "", "--x is empty; it must be a path"),
    ("dataset", "a\x00b", "--x is 'a\\x00b'; it must be a text"),
    ("gpus", "0,1", "--x is '0,1'; it must be a whole number, from 1 to 1024: how many; --devices names which"),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED_TEXTS)
def test_a_wrong_text_is_refused_in_one_line(name, text, message):
    """The line names the origin, the value received and what it must be."""
    with pytest.raises(UsageError) as error:
        values.from_text(name, text, subject="--x")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("learning_rate", 1, 1.0),
        ("batch_size", "auto", "auto"),
        ("devices", [0, 2], "0,2"),
        ("devices", ["GPU-1", "GPU-2"], "GPU-1,GPU-2"),
        ("devices", "0", "0"),
        ("output_dir", "runs", Path("runs")),
        ("tensorboard", False, False),
    ],
)
def test_data_become_a_value(name, value, expected):
    """TOML and JSON values are taken as they are; a whole number does for a number, and a list for a list."""
    assert values.from_data(name, value, subject="f: x") == expected


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("epochs", True, "f: x is True; it must be a whole number, at least 1"),
        ("epochs", 3.0, "f: x is 3.0; it must be a whole number, at least 1"),
        ("epochs", "3", "f: x is '3'; it must be a whole number, at least 1"),
        ("tensorboard", 1, "f: x is 1; it must be true or false"),
        ("learning_rate", True, "f: x is True; it must be a number, at least 0"),
        ("learning_rate", 10**400, "f: x is inf; it must be a number, at least 0"),
        ("dataset", ["mnist"], "f: x is ['mnist']; it must be a text"),
        ("devices", [0.5], "f: x is [0.5]; it must be a text"),
        ("data_dir", 3, "f: x is 3; it must be a path"),
    ],
)
def test_data_of_a_wrong_type_are_refused(name, value, message):
    """A value of another type is never converted silently."""
    with pytest.raises(UsageError) as error:
        values.from_data(name, value, subject="f: x")
    assert str(error.value) == message


def test_a_home_folder_is_expanded(monkeypatch):
    """No shell expands what stands in `.env` or TOML."""
    monkeypatch.setenv("HOME", "/home/kim")
    assert values.from_text("data_dir", "~/data", subject="--x") == Path("/home/kim/data")


def test_an_unknown_home_is_not_a_folder_named_tilde():
    """Without a home, ~ would silently make a folder of that name."""
    with pytest.raises(UsageError) as error:
        values.from_text("data_dir", "~nobody-of-this-name/data", subject="--x")
    assert str(error.value) == (
        "--x is '~nobody-of-this-name/data'; no home folder is known for this ~, so give the whole path"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 100, "'" + "a" * 78 + "…"),
        ("two\nlines", r"'two\nlines'"),
        (Path("a\x1bb"), r"'a\x1bb'"),
    ],
)
def test_a_value_is_shown_on_one_short_line(value, text):
    """Messages stay one line whatever was received."""
    assert values.shown(value) == text


def test_a_number_too_long_to_print_is_named_instead():
    """Python refuses to print it."""
    assert values.shown(10**5000) == "a number of thousands of digits"


def test_every_option_has_a_default_that_it_accepts():
    """A default that could not be given as a value would be a mistake of the declaration."""
    for name, default in values.defaults().items():
        if default is not None:
            assert values.from_data(name, default, subject=name) == default
