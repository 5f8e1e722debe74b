"""What of a data set is trained on: its input, its label, and what is told where that is not clear."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow_datasets as tfds
from tensorflow_datasets import features as of

from trainbox.config import RunConfig
from trainbox.data.features import choose, class_names
from trainbox.data.view import View
from trainbox.errors import DataError, UsageError

IMAGE = of.Image(shape=(8, 6, 1))
PHOTO = of.Image(shape=(None, None, 3))
LABEL = of.ClassLabel(names=["cat", "dog", "eel"])
TABLE = {
    "features": {
        "rooms": np.int64,
        "area": np.float32,
        "name": of.Text(),
        "at": of.Tensor(shape=(2,), dtype=np.float64),
    },
    "price": np.float32,
    "kind": LABEL,
}


def info(features: Any, pair: Any = None) -> Any:
    """TFDS's information on a set of these features."""
    return SimpleNamespace(full_name="set/1.0.0", features=tfds.features.FeaturesDict(features), supervised_keys=pair)


def found(features: Any, pair: Any = None, **view: Any) -> tuple[Any, ...]:
    """Kind, inputs, label, shape, type and classes."""
    one = choose(info(features, pair), View(**view))
    return one.kind, one.inputs, one.label, one.input_shape, one.input_type, one.num_classes


def test_images_by_class() -> None:
    """As described; stretched if asked for, which only counts where it changes something."""
    simple = {"image": IMAGE, "label": LABEL}
    assert found(simple) == ("image", ("image",), "label", (8, 6, 1), "uint8", 3)
    assert found({"image": PHOTO, "label": LABEL}, size=(4, 5)) == ("image", ("image",), "label", (4, 5, 3), "uint8", 3)
    assert choose(info(simple), View(size=(4, 4))).resized
    assert not choose(info(simple), View(size=(8, 6))).resized
    assert class_names(info(simple), "label") == ["cat", "dog", "eel"]


def test_the_sets_own_pair_decides_and_the_user_before_it() -> None:
    """Of several images and labels."""
    several = {"left": IMAGE, "right": IMAGE, "coarse": LABEL, "fine": LABEL}
    assert found(several, ("left", "fine"))[1:3] == (("left",), "fine")
    assert found(several, ("left", "fine"), inputs=("right",), label="coarse")[1:3] == (("right",), "coarse")


def test_numbers_are_put_one_after_the_other_by_their_names() -> None:
    """A table, all or part of it, to predict a class or a number; what is no number is left out and told."""
    everything = ("features/area", "features/at", "features/rooms")
    assert found(TABLE, ("features", "price")) == ("numbers", everything, "price", (4,), "float32", None)
    assert choose(info(TABLE, ("features", "price")), View()).left_out == ("features/name",)
    assert choose(info(TABLE, ("features", "price")), View()).label_type == "float32"
    assert found(TABLE) == ("numbers", (*everything, "price"), "kind", (5,), "float32", 3)
    asked = found(TABLE, inputs=("features/rooms", "price"), label="kind")
    assert asked == ("numbers", ("features/rooms", "price"), "kind", (2,), "float32", 3)
    one = {"x": of.Tensor(shape=(5, 2), dtype=np.int64), "y": np.bool_}
    assert found(one, ("x", "y")) == ("numbers", ("x",), "y", (5, 2), "float32", 2)
    assert class_names(info(one), "y") == ["false", "true"]


def test_sequences_have_the_length_that_is_asked_for() -> None:
    """Numbers of words, or of a sound."""
    words = {"text": of.Tensor(shape=(None,), dtype=np.int64), "label": LABEL}
    assert found(words, length=7) == ("sequence", ("text",), "label", (7,), "int32", 3)
    sound = {"x": of.Tensor(shape=(None, 2), dtype=np.float32), "label": LABEL}
    assert found(sound, length=7) == ("sequence", ("x",), "label", (7, 2), "float32", 3)


@pytest.mark.parametrize(
    ("features", "view", "line"),
    [
        (
            {"image": IMAGE, "a": LABEL, "b": LABEL},
            {},
            "has 2 class labels (a, b): say with --label what to predict; it has image, b, a",
        ),
        (
            {"left": IMAGE, "right": IMAGE},
            {},
            "has no class label: say with --label what to predict; it has left, right",
        ),
        ({"image": IMAGE, "label": LABEL}, {"label": "lable"}, "has no feature 'lable'; it has label, image"),
        (
            {"image": IMAGE, "label": LABEL},
            {"label": "image"},
            "has Image of shape (8, 6, 1) as 'image': a label must be a class or one number; name another with --label",
        ),
        ({"image": IMAGE, "label": of.ClassLabel()}, {}, "does not say how many classes its label 'label' has"),
        ({"image": IMAGE, "label": LABEL}, {"inputs": ("picture",)}, "has no feature 'picture'; it has image, label"),
        (
            {"left": IMAGE, "right": IMAGE, "label": LABEL},
            {},
            "has 2 images (left, right): name one with --inputs",
        ),
        (
            {"text": of.Text(), "label": LABEL},
            {},
            "has nothing that a model can take besides 'label': text is Text",
        ),
        ({"label": LABEL}, {}, "has nothing that a model can take besides 'label': it has nothing else"),
        (
            TABLE,
            {"inputs": ("features/name", "price")},
            "has Text as 'features/name': --inputs takes images or numbers",
        ),
        (
            {"image": IMAGE, "label": LABEL},
            {"length": 4},
            None,
        ),
        (
            {"image": PHOTO, "label": LABEL},
            {},
            "has images of variable size (None, None, 3): say with --resize what size they shall have, such as 128x128",
        ),
        (
            {"image": of.Image(shape=(8, 8, 1), dtype=np.uint16), "label": LABEL},
            {},
            "has pixels of type uint16: trainbox reads uint8 images",
        ),
        (
            {"text": of.Tensor(shape=(None,), dtype=np.int64), "label": LABEL},
            {},
            "has sequences of variable length as 'text': say with --pad-to how long they shall be",
        ),
        (
            {"image": IMAGE, "age": np.int64, "label": LABEL},
            {"inputs": ("image", "age")},
            "has Image of shape (8, 6, 1) as 'image', which no other can be put beside",
        ),
    ],
)
def test_what_is_not_clear_is_told(features: Any, view: dict[str, Any], line: str | None) -> None:
    """In one line that names what there is, and the option that decides."""
    with pytest.raises(DataError) as refusal:
        choose(info(features), View(**view))
    told = f"data set set/1.0.0 {line}"
    if line is None:
        told = "--pad-to is 4, and the input 'image' of data set set/1.0.0 is an image: leave it out"
    assert str(refusal.value) == told


@pytest.mark.parametrize(
    ("view", "line"),
    [
        ({"size": (4, 4)}, "--resize is set, and the input of data set set/1.0.0 is no image (x)"),
        ({"length": 4}, "--pad-to is 4, and the input of data set set/1.0.0 has one length: leave it out"),
    ],
)
def test_a_size_for_other_rows_is_refused(view: dict[str, Any], line: str) -> None:
    """Numbers have the size that they have."""
    with pytest.raises(DataError) as refusal:
        choose(info({"x": of.Tensor(shape=(3,), dtype=np.float32), "label": LABEL}), View(**view))
    assert str(refusal.value) == line


def test_a_set_without_named_features_is_refused() -> None:
    """Its rows are no dictionary."""
    bare = SimpleNamespace(
        full_name="set/1.0.0", features=of.Tensor(shape=(3,), dtype=np.float32), supervised_keys=None
    )
    with pytest.raises(DataError) as refusal:
        choose(bare, View())
    assert str(refusal.value) == (
        "data set set/1.0.0 has no class label: say with --label what to predict; it has no named features"
    )


def test_a_view_is_read_from_the_options() -> None:
    """Lists, sizes of one or two numbers, and the way to another process."""
    view = View.of(RunConfig(inputs="a, b/c", label="y", resize="96x128", pad_to=5))
    assert view == View(inputs=("a", "b/c"), label="y", size=(96, 128), length=5)
    assert View.from_json(view.to_json()) == view
    assert View.from_json(View().to_json()) == View() == View.of(RunConfig())
    assert View.of(RunConfig(resize="64")).size == (64, 64)
    for wrong in ("0", "x", "4x", "-1x3"):
        with pytest.raises(UsageError) as refusal:
            View.of(RunConfig(resize=wrong))
        assert str(refusal.value) == (
            f"--resize is {wrong!r}; it must be height x width, such as 96x128, or one number for both"
        )
