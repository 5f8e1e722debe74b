"""`trainbox reproduce` and `trainbox compare`: the same bits, or the first step at which they part and what differs."""

from __future__ import annotations

import json
import shutil
import signal
import struct

import pytest

WORDS = (
    "--model",
    "mlp",
    "--epochs",
    "2",
    "--batch-size",
    "100",
    "--reproducible",
    "--shards",
    "4",
    "--log-steps",
    "7",
)
DROPS = ("--schedule", "step", "--decay-epochs")
STEPS = 15  # an epoch
OWN = """
import keras
from keras import layers

def build(input_shape, num_classes):
    flat = layers.Flatten()(images := keras.Input(input_shape))
    return keras.Model(images, layers.Dense(num_classes)(layers.Dropout(0.2)(flat)))
"""


def on(devices):
    """The words for this number of logical devices."""
    return ("--logical-devices", str(devices))


@pytest.fixture(scope="module")
def made(place):
    """A reproducible run of two epochs on one device, whose rate drops after the first."""
    assert place.trainbox("train", "--run", "made", *WORDS, *DROPS, "1").ended == 0
    return place.run("made")


def last(command):
    """Its last line, after it has ended without a complaint."""
    assert command.err == ""
    return command.out.splitlines()[-1]


def same(run):
    """The line that promises the same bits."""
    return f"same bits: weights {run.result['weights']}, metrics {run.result['metrics']}"


def test_a_run_is_reproduced_from_its_manifest_alone_on_other_devices(place, made):
    """The manifest in a folder of its own: the same weights, metrics and trace on four devices, and exit 0."""
    (place.folder / "alone").mkdir()
    shutil.copy(made.path / "manifest.json", place.folder / "alone")
    command = place.trainbox("reproduce", "alone", "--output-dir", "output", *on(4))
    assert (command.ended, last(command)) == (0, same(made))
    again = place.run("alone-reproduced")
    assert (again.path / "trace.jsonl").read_bytes() == (made.path / "trace.jsonl").read_bytes()
    assert json.loads((again.path / "manifest.json").read_text())["plan"]["replicas"] == 4
    compared = place.trainbox("compare", "made", "alone-reproduced", "--json")
    assert (compared.ended, compared.err) == (0, "")
    values = json.loads(compared.out)
    assert (values["verdict"], values["steps"], values["first"], values["can_alter"]) == ("same bits", 30, None, {})
    assert values["cannot_alter"]["plan.replicas"] == [1, 4]


def test_every_step_leaves_one_line(made):
    """Its number, its loss and its fingerprint; no two steps have the same."""
    lines = [json.loads(line) for line in (made.path / "trace.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 2 * STEPS + 1))
    assert len({line["bits"] for line in lines}) == 2 * STEPS


CHANGES = [
    ("seed", 2),
    ("config.seed", 2),
    ("config.learning_rate", 0.002),
    ("config.epochs", 3),
    ("plan.shards", 8),
    ("plan.global_batch", 50),
    ("data.version", "1.0.1"),
    ("data.checksums.digits-train.tfrecord-00000-of-00001", "0" * 64),
    ("devices.kind", "gpu"),
    ("packages.numpy", "1.0.0"),
    ("trainbox.version", "0.0.9"),
    ("python", "3.10.0"),
    ("result.weights", "0" * 64),
    ("result.metrics", "0" * 64),
    ("result.test/accuracy", 1.0),
]


def edit(run, path, value):
    """Change one value of a run's manifest by hand."""
    manifest = json.loads((run.path / "manifest.json").read_text())
    *sections, name = path.split(".", 2)
    place = manifest
    for section in sections:
        place = place[section]
    assert place[name] != value
    place[name] = value
    (run.path / "manifest.json").write_text(json.dumps(manifest, indent=2))


@pytest.fixture
def edited(place, made):
    """A copy of the run, whose manifest is to be changed."""
    run = place.run("edited")
    shutil.copytree(made.path, run.path)
    yield run
    shutil.rmtree(run.path)


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_a_manifest_changed_in_one_value_is_told_with_the_value(place, edited, path, value):
    """Before anything is trained, with exit 1; standard output of --json is JSON alone."""
    edit(edited, path, value)
    command = place.trainbox("reproduce", "edited", "--json")
    assert command.ended == 1
    assert json.loads(command.out)["verdict"] == "different"
    assert json.loads(command.out)["changed"] == [path]
    assert command.err == (
        f"different: output/edited was not run again; differs: {path} (changed in manifest.json after the run) "
        "(--anyway runs it all the same)\n"
    )
    assert not place.run("edited-reproduced").path.exists()


def test_a_changed_manifest_can_be_run_all_the_same(place, edited):
    """With the changed rate it comes out different from the first step on, and the rate is named."""
    edit(edited, "config.learning_rate", 0.002)
    command = place.trainbox("reproduce", "edited", "--anyway", "--run", "other")
    assert (command.ended, last(command)) == (
        1,
        "different: first at step 1 (epoch 1), the loss is the same, its bits are not; differs: config.learning_rate "
        "(changed in manifest.json after the run)",
    )
    again = place.trainbox("reproduce", "edited", "--anyway", "--run", "other")
    assert (again.ended, again.complaint) == (
        2,
        "--run other: output/other holds another run; choose another --run",
    )


def test_an_unfinished_run_is_not_reproduced(place, edited):
    """Exit 2: there is no result yet to compare with."""
    manifest = json.loads((edited.path / "manifest.json").read_text())
    (edited.path / "manifest.json").write_text(json.dumps(manifest | {"result": None}))
    command = place.trainbox("reproduce", "edited")
    assert (command.ended, command.complaint) == (
        2,
        "output/edited is not finished: its manifest.json has no result; finish it, then reproduce it",
    )


def test_a_manifest_without_a_section_is_damaged(place, edited):
    """What a run is made from must be there, also where no seal tells that it is gone."""
    manifest = json.loads((edited.path / "manifest.json").read_text())
    del manifest["plan"], manifest["seal"]
    (edited.path / "manifest.json").write_text(json.dumps(manifest))
    command = place.trainbox("reproduce", "edited")
    assert (command.ended, command.complaint) == (
        1,
        "output/edited/manifest.json is damaged: it lacks plan, which a run is made from",
    )


def test_a_run_that_began_from_another_is_not_reproduced(place, edited):
    """Its manifest does not hold the weights that it began with."""
    manifest = json.loads((edited.path / "manifest.json").read_text())
    fork = {"run": "first", "step": 15, "weights": "0" * 64}
    (edited.path / "manifest.json").write_text(json.dumps(manifest | {"fork": fork}))
    command = place.trainbox("reproduce", "edited")
    assert (command.ended, command.complaint) == (
        2,
        "output/edited began from step 15 of first, whose weights no manifest holds, so it cannot be run again from "
        "its manifest alone; reproduce a run that began from nothing",
    )


def swapped(place, tmp_path, *, version="1.0.0"):
    """A data folder with the digits whose first two training rows have changed places."""
    folder = tmp_path / "digits" / version
    shutil.copytree(place.data_dir / "digits" / "1.0.0", folder)
    (folder / "checksums.sha256").unlink()
    (file,) = folder.glob("*-train.tfrecord*")
    data = file.read_bytes()
    ends = [0]
    for _ in range(2):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", data, ends[-1])[0])
    file.write_bytes(data[ends[1] : ends[2]] + data[: ends[1]] + data[ends[2] :])
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"1.0.0"', f'"{version}"'))
    return {"TRAINBOX_DATA_DIR": str(tmp_path)}


def test_other_data_are_told_before_anything_is_trained(place, made, tmp_path):
    """The file is named with both checksums; a run that goes on is refused for it."""
    file = "digits-train.tfrecord-00000-of-00001"
    command = place.trainbox("reproduce", "made", **swapped(place, tmp_path))
    assert command.ended == 1
    assert last(command).startswith(f"different: output/made was not run again; differs: data.checksums.{file} (")
    resumed = place.trainbox(
        "train", "--run", "made", *WORDS, *DROPS, "1", "--epochs", "3", **swapped(place, tmp_path / "x")
    )
    assert resumed.ended == 2
    before = json.loads((made.path / "manifest.json").read_text())["data"]["checksums"][file]
    assert f"cannot go on like this: {file} of the data set had SHA-256 {before} and has " in resumed.complaint


def test_a_run_does_not_go_on_with_another_version_of_its_data(place, made, tmp_path):
    """Exit 2, naming both, even though it has as many rows."""
    environ = swapped(place, tmp_path, version="1.0.1")
    command = place.trainbox("train", "--run", "made", *WORDS, *DROPS, "1", "--epochs", "3", **environ)
    assert command.ended == 2
    line = "output/made holds a run that cannot go on like this: the data set was digits/1.0.0 and is digits/1.0.1; say"
    assert command.complaint.startswith(line)


def test_two_runs_that_part_are_told_the_step(place, made):
    """A rate that drops after the second epoch instead of the first: all is the same up to step 15, not one more."""
    assert place.trainbox("train", "--run", "later", *WORDS, *DROPS, "2", *on(2)).ended == 0
    command = place.trainbox("compare", "made", str(place.run("later").path))
    assert command.ended == 1
    assert command.out.splitlines() == [
        "A  output/made: finished, 30 steps, 2 epochs",
        f"B  {place.run('later').path}: finished, 30 steps, 2 epochs",
        "differs, and can alter the result:",
        "  config.decay_epochs  1.0  2.0",
        "differs, and cannot alter the result:",
        "  config.logical_devices  -     2",
        "  config.run              made  later",
        "  plan.replicas           1     2",
        "compared: every step up to 30, by its fingerprint",
        "different: first at step 16 (epoch 2), the loss is the same, its bits are not; differs: config.decay_epochs "
        "(1.0 and 2.0)",
    ]


def test_a_killed_run_has_the_trace_of_the_straight_one(place, made):
    """Compared while it is not finished, then gone on with on other devices: its trace is the same to the byte."""
    words = ("train", "--run", "killed", *WORDS, *DROPS, "1")
    run = place.run("killed")
    killed = place.start(*words, *on(4)).until(lambda: run.steps)
    killed.send(signal.SIGKILL)
    killed.wait()
    trace = run.path / "trace.jsonl"
    step = len(trace.read_text().splitlines())
    trace.write_bytes(trace.read_bytes() + b'{"step": 31, "lo')
    compared = place.trainbox("compare", "made", "killed")
    told = f"same bits up to step {step}, as far as both went: output/killed not finished"
    assert (compared.ended, last(compared)) == (0, told)
    assert place.trainbox(*words, *on(2)).ended == 0
    assert trace.read_bytes() == (made.path / "trace.jsonl").read_bytes()
    assert run.same == made.same


def test_without_reproducible_what_was_logged_is_compared(place):
    """Two seeds part before their first line, and no step has a fingerprint; a run that is reproduced says so."""
    for seed in ("1", "2"):
        words = ("--model", "mlp", "--epochs", "1", "--log-steps", "10", "--seed", seed)
        assert place.trainbox("train", "--run", f"seed-{seed}", *words).ended == 0
    assert not (place.run("seed-1").path / "trace.jsonl").exists()
    command = place.trainbox("compare", "seed-1", "seed-2")
    assert command.ended == 1
    assert last(command).startswith("different: first between steps 1 and 10 (epoch 1), interval/loss ")
    assert last(command).endswith("; differs: config.seed (1 and 2)")
    again = place.trainbox("reproduce", "seed-1")
    assert "the run was made without --reproducible: its bits are not promised" in again.out.splitlines()
    assert again.ended == (0 if last(again) == same(place.run("seed-1")) else 1)


def test_own_code_that_has_changed_or_is_gone_is_told(place):
    """By the path that was recorded, from another folder too; the same file in other words is the same code."""
    file = place.folder / "net.py"
    file.write_text(OWN)
    words = ("train", "--run", "own", "--epochs", "1", "--reproducible", "--model", "net.py:build")
    assert place.trainbox(*words).ended == 0
    command = place.trainbox("reproduce", "own", *on(2))
    assert (command.ended, last(command)) == (0, same(place.run("own")))
    file.write_text(OWN.replace("0.2", "0.3"))
    changed = place.trainbox("reproduce", "own")
    assert changed.ended == 1
    assert last(changed).startswith("different: output/own was not run again; differs: code.--model (")
    file.unlink()
    gone = place.trainbox("reproduce", "own")
    assert (gone.ended, gone.complaint) == (
        2,
        f"--model: there is no file {file}, which the run was made with; put it back",
    )


def test_what_cannot_be_compared(place, made):
    """No such run, and one that has no step yet."""
    unknown = place.trainbox("compare", "made", "mad")
    assert (unknown.ended, unknown.complaint) == (2, "no run 'mad' in output; did you mean made?")
    (place.folder / "empty").mkdir()
    (place.folder / "empty" / "manifest.json").write_text("{}")
    empty = place.trainbox("compare", "made", "empty")
    assert (empty.ended, empty.complaint) == (2, "empty has no step to compare yet; train it first")
