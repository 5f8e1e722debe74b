"""Prepared folders: found by their names, described by themselves, checked against their checksums."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from trainbox.data import prepare, prepared
from trainbox.data.names import parse
from trainbox.errors import DataError


def put(folder: Path, *files: str) -> Path:
    """A folder with empty `files`, by default those that make it a prepared one."""
    folder.mkdir(parents=True)
    for file in files or ("dataset_info.json", "features.json"):
        (folder / file).touch()
    return folder


def test_the_highest_prepared_version_counts(tmp_path: Path) -> None:
    """Versions are compared as numbers, and a version that is asked for is found however many others there are."""
    for version in ("3.0.1", "3.10.0", "3.9.2"):
        put(tmp_path / "mnist" / version)
    assert prepared.find(parse("mnist"), tmp_path) == tmp_path / "mnist" / "3.10.0"
    assert prepared.find(parse("mnist:3.0.*"), tmp_path) == tmp_path / "mnist" / "3.0.1"
    assert prepared.find(parse("mnist:4.0.0"), tmp_path) is None


def test_half_a_set_is_no_set(tmp_path: Path) -> None:
    """A folder that is being written, or lacks a description, does not count; nor does a data folder that is a file."""
    put(tmp_path / "mnist" / "incomplete.ABCDEF_3.0.1")
    put(tmp_path / "mnist" / "3.0.1", "dataset_info.json")
    (tmp_path / "file").touch()
    assert prepared.find(parse("mnist"), tmp_path) is None
    assert prepared.find(parse("mnist"), tmp_path / "absent") is None
    assert prepared.find(parse("mnist"), tmp_path / "file") is None


def test_a_configuration_is_a_folder(tmp_path: Path) -> None:
    """A configuration is looked for under its name; without one, TFDS's note on its default decides, if readable."""
    for config in ("byclass", "letters"):
        put(tmp_path / "emnist" / config / "3.1.0")
    assert prepared.find(parse("emnist/letters"), tmp_path) == tmp_path / "emnist" / "letters" / "3.1.0"
    assert prepared.find(parse("emnist"), tmp_path) is None
    note = put(tmp_path / "emnist" / ".config", "metadata.json") / "metadata.json"
    assert prepared.find(parse("emnist"), tmp_path) is None
    note.write_text(json.dumps({"default_config_name": "byclass"}))
    assert prepared.find(parse("emnist"), tmp_path) == tmp_path / "emnist" / "byclass" / "3.1.0"


def test_a_folder_that_may_not_be_looked_into_is_told(tmp_path: Path) -> None:
    """A data folder that cannot be read for another reason than that it is not there is an error, not an empty one."""
    (tmp_path / "mnist").symlink_to("mnist")
    with pytest.raises(DataError) as refusal:
        prepared.find(parse("mnist"), tmp_path)
    assert str(refusal.value) == (
        f"cannot find data set mnist in {tmp_path}/mnist (Too many levels of symbolic links): make it readable, or "
        "name another --data-dir"
    )


def test_the_digits_describe_themselves(digits_dir: Path) -> None:
    """A prepared set is described from its folder alone, and TensorFlow is not needed for it."""
    info = prepare.prepare("digits:1.*.*", data_dir=digits_dir, offline=True)
    assert (info.name, info.full_name, info.version) == ("digits:1.*.*", "digits/1.0.0", "1.0.0")
    assert info.path == digits_dir / "digits" / "1.0.0"
    assert (info.input_shape, info.num_classes, info.splits) == ((8, 8, 1), 10, {"train": 1438, "test": 359})
    assert info.checksums == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in info.path.glob("*.tfrecord-*")
    }
    assert list(info.checksums) == [f"digits-{split}.tfrecord-00000-of-00001" for split in ("train", "test")]


def test_other_files_than_were_written_are_told(digits_dir: Path, tmp_path: Path) -> None:
    """A flipped bit, a missing file and an unreadable description are each told by the file's name before any use."""
    path = shutil.copytree(digits_dir / "digits", tmp_path / "digits") / "1.0.0"
    file = path / "digits-test.tfrecord-00000-of-00001"
    whole = file.read_bytes()
    remedy = "; remove that folder and start again to prepare it anew"

    file.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    assert damage(tmp_path) == (
        f"the data set in {path} is damaged: {file.name} has SHA-256 {found}, and {hashlib.sha256(whole).hexdigest()} "
        f"was written{remedy}"
    )
    file.unlink()
    assert damage(tmp_path) == (
        f"the data set in {path} is damaged: {file.name} cannot be read (No such file or directory){remedy}"
    )
    file.write_bytes(whole)
    (path / prepared.CHECKSUMS).write_bytes(b"\xff\xfe")
    assert damage(tmp_path).startswith(
        f"the data set in {path} is damaged: checksums.sha256 cannot be read ('utf-8' codec"
    )
    (path / "dataset_info.json").write_text("{")
    assert damage(tmp_path).startswith(
        f"the data set in {path} is damaged: its description cannot be read (ParseError: "
    )


def damage(data_dir: Path) -> str:
    """The one line that the digits in `data_dir` are refused with."""
    with pytest.raises(DataError) as refusal:
        prepare.prepare("digits", data_dir=data_dir, offline=True)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_a_set_that_tfds_prepared_has_no_recorded_sums(digits_dir: Path, tmp_path: Path) -> None:
    """Without recorded sums the files are hashed all the same."""
    path = shutil.copytree(digits_dir / "digits", tmp_path / "digits") / "1.0.0"
    (path / prepared.CHECKSUMS).unlink()
    theirs = prepare.prepare("digits", data_dir=tmp_path)
    assert theirs.checksums == prepare.prepare("digits", data_dir=digits_dir).checksums


def test_large_sets_are_not_hashed_at_every_start(digits_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the recorded sums are taken on trust."""
    monkeypatch.setattr(prepared, "VERIFIED_BYTES", 1000)
    path, file = digits_dir / "digits" / "1.0.0", "digits-test.tfrecord-00000-of-00001"
    recorded = dict(reversed(line.split("  ")) for line in (path / prepared.CHECKSUMS).read_text().splitlines())
    monkeypatch.setattr(prepared, "_sha256", lambda file: pytest.fail(f"{file} was hashed"))
    assert prepared.checked(path, [file]) == {file: recorded[file]}
