"""`--batch-size auto` as a job: how trials end, and where the number is found again."""

import json
import sys
import types

import pytest

from trainbox.config import RunConfig, options
from trainbox.devices import Selection
from trainbox.display import open_display
from trainbox.errors import DataError, RunFailedError, UsageError
from trainbox.jobs import batching, failing
from trainbox.plan import Plan
from trainbox.settings import Settings

CPU = Selection(kind="cpu", replicas=1, visible_devices="", names=("CPU",), notice="")


def words(**values):
    """The words of a run with these values."""
    config = RunConfig(**{"batch_size": "auto", **values})
    return Settings(config=config, sources=dict.fromkeys(options(), "default") | {"batch_size": "flag --batch-size"})


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A trial whose process is a shell script."""

    def make(script):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        silent = open_display("plain", stream=None, environ={})
        return batching._Trial(words=words(), selection=CPU, budget=None, display=silent)

    return make


@pytest.mark.parametrize(
    ("script", "fits"),
    [
        ("echo noise; printf '\\n\\036{\"fits\": true}\\n'; sleep 60", True),
        ("printf '\\n\\036{\"fits\": false}\\n'", False),
        # By the kernel for want of memory, and by C++.
        ("kill -9 $$", False),
        ("kill -6 $$", False),
    ],
)
def test_a_trial_tells_whether_a_batch_fits(trial, script, fits):
    """By its answer, after which nobody waits for it, or by how it ended."""
    assert trial(script).fits(64) is fits


def test_a_trial_that_fails_otherwise_is_told(trial):
    """With its own error, or with the last that it said."""
    with pytest.raises(DataError, match=r"^no such data set$"):
        trial('printf \'\\n\\036{"error": "no such data set", "code": 4}\\n\'').fits(64)
    with pytest.raises(RunFailedError) as error:
        trial("echo first; echo cannot go on; exit 7").fits(64)
    assert str(error.value) == (
        "--batch-size auto: the trial of a batch of 64 ended with status 7 (cannot go on); give --batch-size a number"
    )


def test_a_run_that_goes_on_has_its_number(tmp_path):
    """From its manifest, once it has saved anything; another word is left alone."""
    (tmp_path / "manifest.json").write_text(json.dumps({"plan": {"global_batch": 944}}))
    assert batching.recalled(tmp_path, words()).config.batch_size == "auto"
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-0000000001.safetensors").touch()
    found = batching.recalled(tmp_path, words())
    assert (found.config.batch_size, found.sources["batch_size"]) == (944, "flag --batch-size auto")
    assert batching.recalled(tmp_path, words(batch_size=32)).config.batch_size == 32
    assert batching.recalled(tmp_path / "new", words()).config.batch_size == "auto"


@pytest.mark.parametrize(
    ("values", "shards", "batch", "message"),
    [
        (
            {},
            6,
            96,
            "out of memory with a global batch of 96, 48 rows a replica, 16 of them at once; use a smaller "
            "--batch-size (auto finds the largest that fits), or --shards 8 (now 6) to compute 12 rows at once",
        ),
        (
            {"reproducible": True},
            8,
            8,
            "out of memory with a global batch of 8, 4 rows a replica, 1 of them at once; use a smaller --batch-size",
        ),
        (
            {"engine": "fit"},
            2,
            96,
            "out of memory with a global batch of 96, 48 rows a replica; use a smaller --batch-size",
        ),
    ],
)
def test_what_takes_less_memory_is_told(values, shards, batch, message):
    """The next power of two of shards a replica, unless each has one row already or the engine knows none."""
    made = Plan(replicas=2, shards=shards, global_batch=batch, examples=1000, epochs=1)
    assert failing.memory_message(RunConfig(**values), made) == message


def test_rows_that_are_held_out_are_no_training_rows():
    """The bound of the search is what `hold_out` leaves."""
    info = types.SimpleNamespace(splits={"train": 1438})
    shares = (0.0, 0.93, 0.99999, 0.00001)
    assert [batching._rows(info, RunConfig(validation_split=share)) for share in shares] == [1438, 101, 1, 1437]


def test_several_workers_need_a_number():
    """Each would find another batch, or find it with the other's memory."""
    batching.refuse(RunConfig(batch_size=64))
    with pytest.raises(UsageError, match="--batch-size auto is tried on one worker alone; find it there, and give all"):
        batching.refuse(RunConfig(batch_size="auto"))
