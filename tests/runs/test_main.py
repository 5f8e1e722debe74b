"""The main job, as a user runs it first: `trainbox train`, then once more, then with more epochs."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def first(place):
    """`trainbox train --run first` with every default, in a program of its own."""
    return place.trainbox("train", "--run", "first", fresh=True)


def test_the_digits_are_learned(place, first):
    """It ends with 0 and nothing on standard error, and 97 of 100 unseen digits are read rightly."""
    assert (first.ended, first.err) == (0, "")
    result = place.run("first").result
    assert result["test/accuracy"] >= 0.97
    assert (result["epochs_done"], result["step"], result["stopped_early"]) == (30, 690, False)


def test_the_first_lines_say_what_will_happen(place, first):
    """Run, devices, data, model and batch; a line an epoch; the test and the place; nothing that a log dislikes."""
    lines = first.out.splitlines()
    data = place.data_dir / "digits" / "1.0.0"
    assert lines[:5] == [
        "run: first, in output/first",
        "devices: training on the CPU",
        f"data: digits/1.0.0, 1,438 train, 359 test rows of 8×8×1, 10 classes, in {data}",
        "model: cnn, 19,466 parameters in float32; adam, learning rate 0.001, constant",
        "batch: 64 global, 64 a replica (replicas 1, shards 1, rows a shard 64); 23 steps an epoch, 30 epochs",
    ]
    assert [line.split("/")[0].split() for line in lines[5:35]] == [["epoch", str(epoch)] for epoch in range(1, 31)]
    assert lines[35].startswith("test/loss ")
    assert lines[36].startswith("speed: ")
    assert lines[37:] == ["done: output/first"]
    assert not set(first.out) & {"\b", "\r", "\x1b"}


def test_the_run_folder_is_complete(place, first):
    """What the README promises, the last three checkpoints, and no temporary file."""
    run = place.run("first")
    folders, files = {"checkpoints", "tensorboard"}, {"config.json", "manifest.json", "metrics.jsonl", "model.keras"}
    assert {path.name for path in run.path.iterdir()} == folders | files | {"train.log", ".lock"}
    assert [path.name for path in run.checkpoints] == [f"step-0000000{step}.safetensors" for step in (690, 667, 644)]
    assert len(list((run.path / "checkpoints").iterdir())) == 3
    assert (run.path / "train.log").read_text() == first.out.partition("\n")[2]


def test_every_line_of_the_metrics_is_flat_and_placed(place, first):
    """Step, epoch and seconds in each; examples per second wherever rows were trained on; a line every 100 steps."""
    lines = place.run("first").lines
    for line in lines:
        assert list(line)[:3] == ["step", "epoch", "seconds"]
        assert all(isinstance(value, int | float) for value in line.values())
    epochs = [line for line in lines if "train/loss" in line]
    assert [(line["step"], line["epoch"]) for line in epochs] == [(23 * epoch, epoch) for epoch in range(1, 31)]
    assert all(line["train/examples_per_second"] > 0 for line in epochs)
    intervals = [line for line in lines if "interval/loss" in line]
    assert [line["step"] for line in intervals] == [100, 200, 300, 400, 500, 600]
    assert all(line["interval/examples_per_second"] > 0 for line in intervals)
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert sorted(lines[-1]) == ["epoch", "seconds", "step", "test/accuracy", "test/loss"]


def test_a_finished_run_says_so_and_changes_nothing(place, first):
    """D6: the same command line ends at once, with 0, and writes nothing."""
    run = place.run("first")
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file() and path.name != ".lock"}
    again = place.trainbox("train", "--run", "first")
    assert (again.ended, again.out, again.err) == (0, "run: first, in output/first\nalready complete (30/30)\n", "")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_more_epochs_run_exactly_those_that_are_missing(place, first):
    """D6: of 32 epochs the last two, from the weights of the thirtieth, and the lines before stay as they were."""
    shutil.copytree(place.run("first").path, place.run("more").path)
    before = place.run("first").lines
    more = place.trainbox("train", "--run", "more", "--epochs", "32")
    assert (more.ended, more.err) == (0, "")
    assert "going on from step 690 (30 of 32 epochs done)" in more.out.splitlines()
    lines = place.run("more").lines
    assert lines[: len(before)] == before
    assert [line["epoch"] for line in lines[len(before) :] if "train/loss" in line] == [31, 32]
    assert place.run("more").result["step"] == 32 * 23
