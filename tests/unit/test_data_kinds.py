"""Sets of every kind, prepared by TFDS for real: tables, sequences, photographs, one's own; and parts of them."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainbox.data import arrays, folders, labels, own, prepare, splits
from trainbox.data.about import about
from trainbox.data.prepared import DatasetInfo
from trainbox.data.view import View
from trainbox.errors import DataError

BUILDERS = """
import numpy as np
import tensorflow_datasets as tfds

ROWS = 50


class Base(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _split_generators(self, manager):
        return {"train": self._generate_examples(0, ROWS), "test": self._generate_examples(ROWS, ROWS + 10)}


class House(Base):
    def _info(self):
        features = {
            "features": {"rooms": np.int64, "area": np.float32, "name": tfds.features.Text(), "old": np.bool_},
            "price": np.float32,
            "id": np.int64,
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), supervised_keys=("features", "price")
        )

    def _generate_examples(self, first, last):
        for i in range(first, last):
            row = {"rooms": i, "area": i / 4, "name": str(i), "old": i % 2}
            yield i, {"features": row, "price": i / 2, "id": i}


class Words(Base):
    def _info(self):
        features = {
            "text": tfds.features.Tensor(shape=(None,), dtype=np.int64),
            "label": tfds.features.ClassLabel(num_classes=9),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _generate_examples(self, first, last):
        for i in range(first, last):
            yield i, {"text": np.arange(1, i % 7 + 1), "label": 2 + 3 * (i % 2)}


class Emnist(Base):
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="letters")]

    def _info(self):
        features = {"image": tfds.features.Image(shape=(2, 2, 1)), "label": tfds.features.ClassLabel(num_classes=3)}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _generate_examples(self, first, last):
        for i in range(first, last):
            yield i, {"image": np.array([[[1], [2]], [[3], [i]]], np.uint8), "label": 1 + i % 2}


class Holed(House):
    def _generate_examples(self, first, last):
        for i, row in super()._generate_examples(first, last):
            yield i, {**row, "price": float("nan") if i == 7 else row["price"]}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the file of the user's builders."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "sets.py").write_text(BUILDERS)
    return folder


@functools.cache
def given(place: Path, builder: str, **view: Any) -> DatasetInfo:
    """The set of one of the builders, prepared, and described, once."""
    return prepare.prepare(f"{place}/sets.py:{builder}", data_dir=place / "data", view=View(**view))


def by_row(rows: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Rows in the order of their numbers: TFDS shuffles what it writes."""
    return rows[np.argsort(order, kind="stable")]


def test_a_table_to_predict_a_number(place: Path) -> None:
    """Its numbers by their names, bytes and truth values among them, as float32; the label as it is."""
    info = given(place, "House")
    assert (info.full_name, info.splits) == ("house/1.0.0", {"train": 50, "test": 10})
    rows, prices = arrays.load(info, "train")
    assert (rows.dtype, prices.dtype) == (np.float32, np.float32)
    i = np.arange(50)
    assert np.array_equal(by_row(rows, prices), np.stack([i / 4, i % 2, i], axis=1).astype(np.float32))
    assert np.array_equal(np.sort(prices), (i / 2).astype(np.float32))
    some = given(place, "House", inputs=("id",), label="features/old")
    assert (some.input_shape, some.num_classes) == ((1,), 2)
    ids, old = arrays.load(some, "train")
    assert np.array_equal(ids[:, 0].astype(int) % 2, old)


def test_sequences_are_padded_and_cut(place: Path) -> None:
    """With zeros at the end, as whole numbers."""
    rows, truth = arrays.load(given(place, "Words", length=4), "train")
    assert (rows.dtype, truth.dtype, rows.shape) == (np.int32, np.int32, (50, 4))
    longest = np.array([[*range(1, min(n, 4) + 1), *[0] * (4 - n)] for n in (i % 7 for i in range(50))])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, longest.tolist()))


def test_classes_that_occur_are_numbered_anew(place: Path) -> None:
    """Of 9 declared classes the 2nd and the 5th; the same numbers in every split."""
    info = given(place, "Words", length=4)
    used = labels.used(info)
    assert (info.num_classes, used.num_classes, used.used) == (9, 2, (2, 5))
    for split in ("train", "test"):
        declared, anew = labels.load(info, split)[1], labels.load(used, split)[1]
        assert set(declared) == {2, 5}
        assert np.array_equal(declared, np.array([2, 5])[anew])
        assert anew.dtype == np.int32
    with pytest.raises(DataError, match=r"^--classes used is set, and 'price' of data set house/1.0.0 is a number$"):
        labels.used(given(place, "House"))


def test_emnists_images_are_set_right(place: Path) -> None:
    """Row and column of every pixel are exchanged, once."""
    images, _ = arrays.load(given(place, "Emnist"), "test")
    assert sorted(images[..., 0].tolist()) == [[[1, 3], [2, i]] for i in range(50, 60)]


def test_a_missing_number_is_told(place: Path) -> None:
    """Before it makes every weight NaN."""
    info = given(place, "Holed")
    with pytest.raises(DataError) as refusal:
        arrays.load(info, "train")
    assert str(refusal.value) == (
        "data set holed/1.0.0 has values in split 'train' that are missing or infinite (of price): leave features out "
        "with --inputs, or prepare a set without such rows"
    )


@pytest.mark.parametrize(
    ("expression", "parts", "rows"),
    [
        ("train", [("train", 0, 50)], 50),
        ("train[:90%]", [("train", 0, 45)], 45),
        ("train[-10:]", [("train", 40, 50)], 10),
        ("train[10:20]+train[:5]", [("train", 10, 20), ("train", 0, 5)], 15),
        ("train[48:]+test", [("train", 48, 50), ("test", 0, 10)], 12),
        ("test[50%:]", [("test", 5, 10)], 5),
    ],
)
def test_parts_of_splits(place: Path, expression: str, parts: list[tuple[str, int, int]], rows: int) -> None:
    """In TFDS's words, and the rows that they give, in their order."""
    info = given(place, "House")
    assert (splits.parts(info, expression), splits.count(info, expression)) == (parts, rows)
    inputs, truth, numbers = labels.load(info, expression)
    expected = np.concatenate([arrays.load(info, split)[1][first:last] for split, first, last in parts])
    assert np.array_equal(truth if numbers is None else truth[numbers], expected)
    assert np.array_equal((inputs if numbers is None else inputs[numbers])[:, 2], 2 * expected)


def test_rows_in_two_parts_are_counted(place: Path) -> None:
    """So that a test on training rows is told."""
    info = given(place, "House")
    assert splits.shared(info, "train[:80%]", "train[70%:]") == 5
    assert splits.shared(info, "train[:80%]", "train[80%:]+test") == 0


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        ("tran[:5]", "data set house/1.0.0 has no split 'tran': it has train 50, test 10; did you mean train?"),
        (
            "train[:60]",
            "'train[:60]' is no part of data set house/1.0.0 (Requested slice [:60] incompatible with 50 examples.): "
            "splits are written like train, train[:90%] or train[1000:]+test",
        ),
        ("train[5:5]", "'train[5:5]' names no rows of data set house/1.0.0, which has train 50, test 10"),
        ("train[20:10]", "'train[20:10]' names no rows of data set house/1.0.0, which has train 50, test 10"),
    ],
)
def test_what_is_no_part_is_told(place: Path, expression: str, line: str) -> None:
    """In one line, with what there is."""
    with pytest.raises(DataError) as refusal:
        splits.parts(given(place, "House"), expression)
    assert str(refusal.value) == line


def test_other_code_of_ones_own_is_told(place: Path, tmp_path: Path) -> None:
    """A set that was prepared by another version of the file is used, and said to be."""
    text = f"{tmp_path}/one.py"
    (tmp_path / "one.py").write_text(BUILDERS.replace("House(Base)", "One(Base)").partition("class Words")[0])
    said: list[str] = []
    path = prepare.prepare(text, data_dir=tmp_path, say=said.append).path
    assert said == [f"preparing data set {text} in {tmp_path}/one/1.0.0"]
    with (tmp_path / "one.py").open("a") as code:
        code.write("# changed\n")
    said.clear()
    assert prepare.prepare(text, data_dir=tmp_path, say=said.append).path == path
    assert said == [
        f"note: {text} has changed since it prepared {path}; give the builder another VERSION to prepare anew"
    ]
    # By its name it needs no code.
    assert prepare.prepare("one", data_dir=tmp_path, offline=True).path == path
    assert about(text, data_dir=tmp_path).path == path


@pytest.mark.parametrize(
    ("code", "chosen", "line"),
    [
        (None, "", "there is no file {file}; give the path of a file that defines a TFDS builder"),
        ("x = 1", "", "{file} defines no builder; it needs a subclass of tfds.core.GeneratorBasedBuilder"),
        (
            BUILDERS,
            "",
            "{file} defines 4 builders (House, Words, Emnist, Holed): name one as code.py:CLASS; it needs a subclass "
            "of tfds.core.GeneratorBasedBuilder",
        ),
        (BUILDERS, ":Hose", "{file} has no builder Hose; it has House, Words, Emnist, Holed"),
        ("import nothing_such", "", "{file} cannot be loaded (ModuleNotFoundError: No module named 'nothing_such')"),
    ],
)
def test_ones_own_file_that_cannot_be_used_is_told(tmp_path: Path, code: str | None, chosen: str, line: str) -> None:
    """In the process that would prepare it: the user's code is never run in this one."""
    file = tmp_path / "code.py"
    if code is not None:
        file.write_text(code)
    with pytest.raises(DataError) as refusal:
        prepare.prepare(f"{file}{chosen}", data_dir=tmp_path / "data")
    assert str(refusal.value) == f"data set {file}{chosen}: {line.format(file=file)}"
    assert not (tmp_path / "data").exists()


def test_the_name_of_a_file_is_told_from_that_of_a_set() -> None:
    """By its ending."""
    assert [own.is_file(text) for text in ("a.py", "/b/a.py:C", "mnist", "mnist:3.0.1", "folder:a")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def picture(file: Path, value: int, size: tuple[int, int] = (6, 4), *, grey: bool = False) -> None:
    """An image of one colour."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = tf.constant(np.full((*size, 1 if grey else 3), value, np.uint8))
    file.write_bytes((tf.io.encode_jpeg if file.suffix == ".jpg" else tf.io.encode_png)(image).numpy())


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder of pictures by class; some of them grey."""
    for n in range(3):
        picture(tmp_path / "pets" / "cat" / f"{n}.png", 10 + n)
        picture(tmp_path / "pets" / "dog" / f"{n}.PNG", 20 + n, grey=True)
    (tmp_path / "pets" / "cat" / ".hidden").write_text("")
    (tmp_path / "pets" / "notes.txt").write_text("")
    return tmp_path / "pets"


def test_a_folder_of_images(pets: Path, tmp_path: Path) -> None:
    """Prepared once under a name of its own; another one once a file has changed."""
    said: list[str] = []
    info = prepare.prepare(f"folder:{pets}", data_dir=tmp_path / "data", say=said.append)
    assert (info.splits, info.input_shape, info.num_classes) == ({"train": 6}, (6, 4, 3), 2)
    assert said == [
        f"preparing data set folder:{pets} in {info.path}",
        f"note: 1 files in folder:{pets} are no images by their names and are left out, as notes.txt",
    ]
    images, truth = arrays.load(info, "train")
    assert sorted(zip(images[:, 0, 0, 0].tolist(), truth.tolist(), strict=True)) == [
        (10, 0), (11, 0), (12, 0), (20, 1), (21, 1), (22, 1),
    ]  # fmt: skip
    told = about(f"folder:{pets}", data_dir=tmp_path / "data")
    assert (told.classes, told.path, told.splits) == (["cat", "dog"], info.path, {"train": 6})
    # By the name that it got it is found without the folder.
    assert (
        prepare.prepare(info.full_name.rpartition("/")[0], data_dir=tmp_path / "data", offline=True).path == info.path
    )

    picture(pets / "eel" / "0.png", 30)
    folders.scan.cache_clear()
    again = prepare.prepare(f"folder:{pets}", data_dir=tmp_path / "data")
    assert (again.splits, again.num_classes, again.path == info.path) == ({"train": 7}, 3, False)


def test_splits_and_sizes_of_a_folder(tmp_path: Path) -> None:
    """Folders of splits have TFDS's names; pictures of several sizes are stretched, grey ones stay grey."""
    picture(tmp_path / "set" / "train" / "a" / "0.png", 7, (5, 9), grey=True)
    picture(tmp_path / "set" / "val" / "b" / "0.png", 8, (3, 3), grey=True)
    folder, data = f"folder:{tmp_path}/set", tmp_path / "data"
    with pytest.raises(DataError, match=r"has images of variable size \(None, None, 1\): say with --resize "):
        prepare.prepare(folder, data_dir=data)
    info = prepare.prepare(folder, data_dir=data, view=View(size=(4, 2)))
    assert (info.splits, info.input_shape) == ({"train": 1, "validation": 1}, (4, 2, 1))
    images, truth = arrays.load(info, "validation")
    assert (images == 8).all()
    assert truth.tolist() == [1]


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ([], "cannot be read: {root} (No such file or directory); give the path of a folder that has a folder of "
             "images for each class"),
        (["a/x.txt"], "has no images (.jpg .jpeg .png .bmp .gif) in {root}: it needs a folder of images for each "
                      "class"),
        (["a.png"], "has a.png, which lies in no folder of a class: put all images into CLASS/ or SPLIT/CLASS/"),
        (["a/b.png", "a/c/d.png"], "has images at different depths, a/b.png and a/c/d.png: put all into CLASS/ or "
                                   "SPLIT/CLASS/"),
    ],
)  # fmt: skip
def test_a_folder_of_another_form_is_told(tmp_path: Path, files: list[str], line: str) -> None:
    """With what lies where."""
    root = tmp_path / "set"
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    with pytest.raises(DataError) as refusal:
        folders.scan(f"folder:{root}")
    assert str(refusal.value) == f"data set folder:{root} {line.format(root=root)}"


def test_a_damaged_picture_is_named(pets: Path, tmp_path: Path) -> None:
    """While the folder is prepared, and nothing counts as prepared."""
    whole = (pets / "cat" / "1.png").read_bytes()
    (pets / "cat" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError) as refusal:
        prepare.prepare(f"folder:{pets}", data_dir=tmp_path / "data")
    assert str(refusal.value).startswith(f"{pets}/cat/1.png cannot be read as an image (")
    assert str(refusal.value).endswith("): repair or remove it")
    assert not (tmp_path / "data" / "folder").exists()
