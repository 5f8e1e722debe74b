"""Which features of a TFDS data set are a model's input and which the label, from its own information."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainbox.data.names import nearest
from trainbox.data.view import View
from trainbox.errors import DataError

IMAGE, NUMBERS, SEQUENCE = "image", "numbers", "sequence"
# TFDS gives these as the original files have them: every image on its side, mirrored.
_TRANSPOSED = ("emnist",)


@dataclass(frozen=True, kw_only=True)
class Features:
    """What a model takes and is to say, by the paths of features (`image`, `features/age`).

    `kind` is `image` (one image, uint8 [height, width, channels], `resized` or `transposed` when it is read), `numbers`
    (a tensor as it is, or several features one after the other, float32) or `sequence` (padded or cut to one length,
    int32 or float32). `input_shape` is that of one row. `num_classes` is None where the label is a number to predict.
    """

    kind: str
    inputs: tuple[str, ...]
    label: str
    input_shape: tuple[int, ...]
    input_type: str
    num_classes: int | None
    resized: bool = False
    transposed: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def label_type(self) -> str:
        """Of labels as they are kept."""
        return "int32" if self.num_classes else "float32"


def choose(info: Any, view: View) -> Features:
    """The input and the label of the `tfds.core.DatasetInfo` `info`: what `view` names, else the set's own supervised
    pair, else its one class label and its one image or all its numbers.

    Raises DataError, naming what there is, where that is not clear or cannot be trained on.
    """
    name, leaves = info.full_name, _leaves(info.features)
    pair = info.supervised_keys if isinstance(info.supervised_keys, tuple) else ()
    label = _label(name, leaves, view, pair)
    classes = _classes(name, label, leaves[label])
    inputs, left_out = _inputs(name, leaves, view, pair, label)
    if len(inputs) == 1 and _is_image(leaves[inputs[0]]):
        found = _image(name, inputs[0], leaves[inputs[0]], view)
    else:
        found = _numbers(name, inputs, leaves, view)
    return Features(
        **found,
        inputs=inputs,
        label=label,
        num_classes=classes,
        left_out=left_out,
        transposed=found["kind"] == IMAGE and name.split("/")[0] in _TRANSPOSED,
    )


def class_names(info: Any, label: str) -> list[str]:
    """The names of the classes of the label at the path `label` of `info`, in the order of their numbers."""
    feature = info.features
    for key in label.split("/"):
        feature = feature[key]
    return list(getattr(feature, "names", ("false", "true")))


def _leaves(features: Any, prefix: str = "") -> dict[str, Any]:
    """Every feature that is no group of others, by its path, in the order of names: a prepared set keeps no other."""
    if not hasattr(features, "items"):
        return {}
    found: dict[str, Any] = {}
    for key, feature in sorted(features.items()):
        found |= _leaves(feature, f"{prefix}{key}/") if hasattr(feature, "items") else {prefix + key: feature}
    return found


def _label(name: str, leaves: Mapping[str, Any], view: View, pair: tuple[Any, ...]) -> str:
    if view.label is not None:
        if view.label not in leaves:
            raise DataError(f"data set {name} has no feature {view.label!r}; {_has(view.label, leaves)}")
        return view.label
    if len(pair) > 1 and isinstance(pair[1], str) and pair[1] in leaves:
        return pair[1]
    labels = [path for path, feature in leaves.items() if _is_class(feature)]
    if len(labels) != 1:
        told = f"{len(labels)} class labels ({', '.join(labels)})" if labels else "no class label"
        raise DataError(f"data set {name} has {told}: say with --label what to predict; {_has('label', leaves)}")
    return labels[0]


def _classes(name: str, path: str, feature: Any) -> int | None:
    """How many classes the label has; None where it is a number."""
    if _is_class(feature):
        if not feature.num_classes:
            raise DataError(f"data set {name} does not say how many classes its label {path!r} has")
        return int(feature.num_classes)
    if not _is_numeric(feature) or tuple(feature.shape) not in ((), (1,)):
        raise DataError(
            f"data set {name} has {_told(feature)} as {path!r}: a label must be a class or one number; name another "
            "with --label"
        )
    return 2 if np.dtype(feature.np_dtype) == np.bool_ else None


def _inputs(
    name: str, leaves: Mapping[str, Any], view: View, pair: tuple[Any, ...], label: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The features that a model takes, and those that it cannot: text and the like."""
    asked = view.inputs or ((pair[0],) if pair and isinstance(pair[0], str) and pair[0] != label else ())
    found: dict[str, Any] = {}
    for path in asked:
        group = {one: leaves[one] for one in leaves if one == path or one.startswith(f"{path}/")}
        if not group:
            raise DataError(f"data set {name} has no feature {path!r}; {_has(path, leaves)}")
        found |= group
    if not asked:
        found = {path: feature for path, feature in leaves.items() if path != label}
        images = [path for path, feature in found.items() if _is_image(feature)]
        if len(images) > 1:
            raise DataError(f"data set {name} has {len(images)} images ({', '.join(images)}): name one with --inputs")
        found = {path: found[path] for path in images} or found
    usable = tuple(path for path, one in found.items() if path != label and (_is_numeric(one) or _is_image(one)))
    if not usable:
        told = ", ".join(f"{path} is {_told(feature)}" for path, feature in found.items()) or "it has nothing else"
        raise DataError(f"data set {name} has nothing that a model can take besides {label!r}: {told}")
    if view.inputs and len(usable) < len(found):
        wrong = next(path for path in found if path not in usable)
        raise DataError(f"data set {name} has {_told(found[wrong])} as {wrong!r}: --inputs takes images or numbers")
    return usable, tuple(path for path in found if path not in usable and path != label)


def _image(name: str, path: str, image: Any, view: View) -> dict[str, Any]:
    if view.length is not None:
        raise DataError(
            f"--pad-to is {view.length}, and the input {path!r} of data set {name} is an image: leave it out"
        )
    height, width, channels = image.shape
    shape = (*(view.size or (height, width)), channels or 3)
    if None in shape:
        raise DataError(
            f"data set {name} has images of variable size {tuple(image.shape)}: say with --resize what size they "
            "shall have, such as 128x128"
        )
    if image.np_dtype != np.uint8:
        raise DataError(
            f"data set {name} has pixels of type {np.dtype(image.np_dtype).name}: trainbox reads uint8 images"
        )
    return {
        "kind": IMAGE,
        "input_shape": tuple(int(size) for size in shape),
        "input_type": "uint8",
        "resized": view.size is not None and view.size != (height, width),
    }


def _numbers(name: str, inputs: tuple[str, ...], leaves: Mapping[str, Any], view: View) -> dict[str, Any]:
    shapes = {path: tuple(leaves[path].shape) for path in inputs}
    if view.size is not None:
        raise DataError(f"--resize is set, and the input of data set {name} is no image ({', '.join(inputs)})")
    first, shape = inputs[0], shapes[inputs[0]]
    if len(inputs) == 1 and shape and shape[0] is None and None not in shape[1:]:
        if view.length is None:
            raise DataError(
                f"data set {name} has sequences of variable length as {first!r}: say with --pad-to how long they "
                "shall be"
            )
        whole = np.dtype(leaves[first].np_dtype).kind in "iu"
        return {
            "kind": SEQUENCE,
            "input_shape": (view.length, *shape[1:]),
            "input_type": "int32" if whole else "float32",
        }
    for path, found in shapes.items():
        if _is_image(leaves[path]) or None in found:
            raise DataError(f"data set {name} has {_told(leaves[path])} as {path!r}, which no other can be put beside")
    if view.length is not None:
        raise DataError(f"--pad-to is {view.length}, and the input of data set {name} has one length: leave it out")
    columns = sum(int(np.prod(found, dtype=int)) for found in shapes.values())
    return {
        "kind": NUMBERS,
        "input_shape": shape if len(inputs) == 1 and shape else (columns,),
        "input_type": "float32",
    }


def _is_image(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return type(feature) is tfds.features.Image  # subclasses such as LabeledImage are masks and the like


def _is_class(feature: Any) -> bool:
    import tensorflow_datasets as tfds

    return type(feature) is tfds.features.ClassLabel


def _is_numeric(feature: Any) -> bool:
    """Whether it is a tensor of numbers of known rank; a variable first axis makes it a sequence."""
    if _is_image(feature) or not isinstance(getattr(feature, "shape", None), tuple):
        return False
    try:
        return np.dtype(feature.np_dtype).kind in "biuf"
    except TypeError:
        return False


def _told(feature: Any) -> str:
    shape = getattr(feature, "shape", None)
    return f"{type(feature).__name__}{f' of shape {shape}' if isinstance(shape, tuple) and shape else ''}"


def _has(word: str, leaves: Mapping[str, Any]) -> str:
    return f"it has {nearest(word, leaves)}" if leaves else "it has no named features"
