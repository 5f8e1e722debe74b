"""`trainbox data`: prepared, listed, described, checked and cleaned up, and what training says of damaged files."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def copy(tmp_path, digits_dir):
    """A data folder of one's own with the digits."""
    shutil.copytree(digits_dir, tmp_path / "data")
    return tmp_path / "data"


def told(place, *words, data_dir, code=0):
    """What a command says on standard output, or its complaint."""
    command = place.trainbox("data", *words, "--data-dir", str(data_dir))
    assert command.wait() == code, command.err
    assert code or command.err == ""
    return command.complaint if code else command.out


def test_a_set_is_prepared_listed_and_described(place, tmp_path):
    """From an empty folder, in which nothing is; a second preparation finds it."""
    data_dir = tmp_path / "new" / "data"
    assert told(place, "list", data_dir=data_dir) == f"no data set is prepared in {data_dir}\n"
    before = told(place, "info", "digits", data_dir=data_dir).splitlines()
    assert [line.split(None, 1) for line in before] == [
        ["name", "digits"],
        ["version", "1.0.0 (of 1.0.0)"],
        ["images", "8 x 8 x 1 (height, width, channels)"],
        ["classes", "10: 0 1 2 3 4 5 6 7 8 9"],
        ["splits", "counted when it is prepared"],
        ["download", "unknown"],
        ["prepared", "no"],
    ]
    assert not data_dir.exists()
    path = data_dir / "digits" / "1.0.0"
    prepared = f"data set digits is prepared in {path}: train 1,438, test 359\n"
    assert told(place, "prepare", "digits", data_dir=data_dir) == f"preparing data set digits in {path}\n{prepared}"
    assert told(place, "prepare", "digits", data_dir=data_dir) == prepared
    size = sum(file.stat().st_size for file in path.rglob("*"))
    listed = json.loads(told(place, "list", "--json", data_dir=data_dir))
    splits = {"train": 1438, "test": 359}
    assert listed == [{"name": "digits", "version": "1.0.0", "splits": splits, "size_bytes": size, "path": str(path)}]
    shown = told(place, "list", data_dir=data_dir)
    assert shown == f"digits  1.0.0  {size / 1024:.1f} KiB  train 1,438, test 359  {path}\n"
    assert f"{size / 1024:.1f} KiB in {path}\n" in told(place, "info", "digits", data_dir=data_dir)
    # Decoded too: where a run may not write, it finds the rows.
    assert len(list((data_dir / "digits" / ".1.0.0-arrays").glob("*/*/inputs.npy"))) == 2


def test_several_are_prepared_as_far_as_they_can(place, copy):
    """Each that cannot is told, and the last line names them."""
    command = place.trainbox("data", "prepare", "digitz", "digits", "digits/big", "--data-dir", str(copy), "--offline")
    assert command.wait() == 4
    assert command.complaint == "2 of 3 data sets are not prepared: digitz, digits/big; see the lines above"
    assert "unknown data set 'digitz'; the nearest that TFDS " in command.out
    assert f"data set digits is prepared in {copy}/digits/1.0.0" in command.out


def flip(file):
    """Flip one bit."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file):
    """Cut it in half."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_damage_is_named_by_verify_and_by_training(place, copy, harm, recorded):
    """One byte flipped in a file, a file cut, a file missing: 4 with its name; also in a set that TFDS made alone."""
    folder = copy / "digits" / "1.0.0"
    file = next(folder.glob("*test.tfrecord*"))
    if not recorded:
        (folder / "checksums.sha256").unlink()
    whole = told(place, "verify", "digits", data_dir=copy)
    sums = "as written" if recorded else "readable, without recorded SHA-256 to compare with"
    assert whole == f"data set digits in {folder} is whole: 2 files {sums}, train 1,438, test 359\n"
    harm(file)
    complaint = told(place, "verify", "digits", data_dir=copy, code=4)
    assert complaint.startswith(f"the data set in {folder} is damaged: {file.name} ")
    if recorded or harm is Path.unlink:
        command = place.trainbox("train", "--run", "damaged", "--data-dir", str(copy))
        assert (command.wait(), command.complaint) == (4, complaint)
        assert not place.run("damaged").path.exists()


def test_what_is_not_prepared_is_not_verified(place, tmp_path):
    """4, with the command that prepares it."""
    assert told(place, "verify", "mnist", data_dir=tmp_path, code=4) == (
        f"data set mnist is not prepared in {tmp_path}: run 'trainbox data prepare mnist' first, or name another "
        "--data-dir"
    )


def old(folder):
    """Let it be of two days ago."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (time.time() - 2 * 86400,) * 2)


def test_only_what_the_dead_left_is_removed(place, copy):
    """Work whose lock is free, what TFDS or a decoding left long ago, arrays without a set; not what is newer."""
    work, key = copy / ".trainbox", "0123456789abcdef" * 2
    dead = [
        work / f"mnist.{key}",
        copy / "mnist" / "incomplete.ABC_3.0.1",
        copy / "downloads" / "mnist" / "x.tmp.1",
        copy / "digits" / ".1.0.0-arrays" / "key" / f".train.{key}",
        copy / "kmnist" / ".3.0.1-arrays",
    ]
    live = [copy / "digits" / "incomplete.DEF_1.0.0", copy / "digits" / ".1.0.0-arrays" / "key" / f".test.{key}"]
    for folder in (*dead, *live):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(bytes(100))
    for folder in dead:
        old(folder)
    (work / "mnist.lock").touch()
    told_first = told(place, "clean", "--dry-run", data_dir=copy)
    assert {folder for folder in dead if f"would remove: {folder} (100 B)\n" in told_first} == set(dead)
    assert f"500 B would be free again in {copy}\n" in told_first
    assert all(folder.exists() for folder in dead)
    said = told(place, "clean", data_dir=copy)
    assert {folder for folder in dead if f"removed: {folder} (100 B)\n" in said} == set(dead)
    for folder in live:
        assert f"left alone, a preparation may be running: {folder} (100 B)\n" in said
        assert (folder / "file").exists()
    assert not any(folder.exists() for folder in dead)
    assert told(place, "verify", "digits", data_dir=copy)
    shutil.rmtree(live[0])
    shutil.rmtree(live[1])
    assert told(place, "clean", data_dir=copy) == f"nothing to remove in {copy}\n"


def test_the_work_of_a_live_preparation_is_left_alone(place, copy):
    """As long as its lock is held, however old it is."""
    import fcntl

    folder = copy / ".trainbox" / f"mnist.{'0' * 32}"
    folder.mkdir(parents=True)
    old(folder)
    with (copy / ".trainbox" / "mnist.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = told(place, "clean", data_dir=copy)
    assert said.startswith(f"left alone, a preparation may be running: {folder} (0 B)\n")
    assert folder.exists()


def test_a_preparation_killed_at_any_moment_leaves_nothing_half_done(place, tmp_path):
    """Twenty times, at random moments of it: nothing damaged counts as prepared, and the next one cleans up."""
    words = ("data", "prepare", "digits", "--data-dir", str(tmp_path))
    for moment in np.random.default_rng(20).uniform(0.0, 4.0, 20):
        command = place.start(*words)
        command.process.join(moment)
        command.process.kill()
        command.wait()
        if (tmp_path / "digits" / "1.0.0").exists():
            # It was quicker than its moment, or was killed while it decoded.
            assert told(place, "verify", "digits", data_dir=tmp_path)
            shutil.rmtree(tmp_path / "digits" / "1.0.0")
    assert told(place, "prepare", "digits", data_dir=tmp_path)
    assert told(place, "verify", "digits", data_dir=tmp_path)
    assert [path.name for path in (tmp_path / ".trainbox").iterdir()] == ["digits.lock"]
    assert not list(tmp_path.rglob("incomplete*"))


def test_a_run_predicts_a_number_from_a_table(place, tmp_path):
    """One's own builder, parts of a split, squared and absolute error, and an export that says what it takes."""
    (tmp_path / "house.py").write_text(HOUSE)
    words = ("--dataset", f"{tmp_path}/house.py", "--data-dir", str(tmp_path / "data"), "--model", "mlp")
    parts = ("--train-split", "train[:80%]", "--validation-rows", "train[80%:]", "--test-split", "train[70%:]")
    # 8 shards of 5 rows: batches of 40, 160 of the 200 rows.
    more = ("--epochs", "8", "--batch-size", "40", "--shards", "8", "--learning-rate", "0.01")
    command = place.trainbox("train", "--run", "house", *words, *parts, *more)
    assert (command.wait(), command.err) == (0, "")
    assert "note: 20 rows are training rows (train[:80%]) and test rows (train[70%:]) too\n" in command.out
    assert "200 train rows of 2, price to predict, in " in command.out
    run = place.run("house")
    assert run.result["step"] == 8 * 4
    assert run.result["test/mae"] < 0.2
    assert run.result["validation/loss"] < run.lines[0]["validation/loss"] / 4
    exported = place.trainbox("export", "house", "--data-dir", str(tmp_path / "data"))
    assert (exported.wait(), exported.err) == (0, "")
    about = json.loads((run.path / "export" / "about.json").read_text())
    assert about["takes"] == {
        "name": "rows", "type": "float32", "shape": [None, 2], "features": ["features/area", "features/rooms"],
    }  # fmt: skip
    assert about["gives"] == {"name": "predictions", "number": "price"}
    # The mean of the squares of what the exported model gives is the loss that evaluation gave.
    check = [sys.executable, "-c", SERVED, str(run.path / "export" / "saved_model"), str(tmp_path / "data")]
    served = subprocess.run(check, capture_output=True, text=True, check=True)
    assert float(served.stdout) == pytest.approx(run.result["test/loss"], rel=1e-5)
    refused = place.trainbox("train", "--run", "fit", *words, "--engine", "fit", "--batch-size", "40")
    assert (refused.wait(), refused.complaint) == (
        2, "--engine fit is for classes, and price of house/1.0.0 is a number; leave it out",
    )  # fmt: skip


HOUSE = """
import numpy as np
import tensorflow_datasets as tfds


class House(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {"features": {"rooms": np.int64, "area": np.float32}, "price": np.float32}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features), supervised_keys=("features", "price")
        )

    def _split_generators(self, manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(200):
            rooms, area = i % 5, i % 8 / 8
            yield i, {"features": {"rooms": rooms, "area": area}, "price": rooms / 4 + area}
"""
SERVED = """
import sys
import numpy as np, tensorflow as tf
from pathlib import Path

folder = next(Path(sys.argv[2]).glob("house/.1.0.0-arrays/*/train"))
rows, prices = np.load(folder / "inputs.npy")[140:], np.load(folder / "labels.npy")[140:]
model = tf.saved_model.load(sys.argv[1])
given = model.serve(rows)["predictions"].numpy()
assert given.shape == (60, 1)
print(np.mean((given[:, 0] - prices) ** 2))
"""
