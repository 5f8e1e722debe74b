"""The seal of a manifest names what was changed in it afterwards."""

import copy
import json

import pytest

from trainbox import seal

MANIFEST = {
    "trainbox": {"version": "0.1.0"},
    "command": ["trainbox", "train"],
    "seed": 1,
    "config": {"learning_rate": 0.001, "epochs": 2, "run": None, "reproducible": True},
    "plan": {"shards": 8},
    "data": {"checksums": {"digits-train.tfrecord-00000-of-00001": "ab"}, "input_shape": [8, 8, 1]},
    "packages": {"numpy": "2.1.0"},
    "starts": [{"time": "now"}],
    "user": "kim",
    "result": {"weights": "f00", "test/loss": 0.25},
}


def sealed():
    return copy.deepcopy(MANIFEST) | {"seal": seal.seal(MANIFEST)}


def test_an_untouched_manifest_is_whole():
    """Also after a way through a file, and in another order."""
    again = json.loads(json.dumps(sealed(), indent=2, sort_keys=True))
    assert seal.broken(again) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trainbox", "version"), "0.2.0"),
        (("seed",), 2),
        (("config", "learning_rate"), 0.002),
        (("config", "epochs"), 2.0),
        (("config", "run"), "first"),
        (("config", "reproducible"), 1),
        (("config", "added"), None),
        (("plan", "shards"), 4),
        (("data", "checksums", "digits-train.tfrecord-00000-of-00001"), "ac"),
        (("data", "input_shape"), [8, 8, 3]),
        (("packages", "numpy"), "2.2.0"),
        (("result", "weights"), "f01"),
        (("result", "test/loss"), 0.25 + 2**-54),
    ],
)
def test_a_changed_value_is_named(path, value):
    """Of whatever section and type, to the last bit."""
    manifest = sealed()
    place = manifest
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert seal.broken(manifest) == [".".join(path)]


def test_values_that_change_places_are_named():
    """Each value is sealed together with its name."""
    manifest = sealed()
    manifest["config"] |= {"learning_rate": 2, "epochs": 0.001}
    assert seal.broken(manifest) == ["config.learning_rate", "config.epochs"]


def test_what_is_gone_is_told_by_its_section():
    """The seal holds digests, not names; a whole new section is named by what is in it."""
    manifest = sealed()
    del manifest["config"]["epochs"], manifest["packages"]
    manifest["image"] = {"digest": "x"}
    assert seal.broken(manifest) == [
        "config (a value is gone)",
        "image.digest",
        "packages (a value is gone)",
    ]


def test_a_seal_that_was_changed_itself_is_told_by_the_value_it_was_of():
    """Whichever of the two was touched, they do not belong together any more."""
    manifest = sealed()
    manifest["seal"]["plan"] = "0" * 8
    assert seal.broken(manifest) == ["plan.shards"]


def test_who_ran_it_and_when_is_not_sealed():
    """Nothing of it decides a bit."""
    manifest = sealed() | {"user": "lee", "command": [], "starts": [], "sources": {}}
    assert seal.broken(manifest) == []


def test_without_a_seal_nothing_is_known_to_have_changed():
    """A run of an earlier version has none."""
    assert seal.broken(MANIFEST) == []
    assert seal.broken(sealed() | {"seal": {}})[0] == "trainbox.version"
