"""From a manifest back to a run: the words that it is made from, what is remarked beforehand, and where it goes."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest

from trainbox import manifest, provenance, settings
from trainbox.errors import UsageError
from trainbox.jobs import reproducing

RUN = Path("output/first")


def now(**flags):
    """The settings of the command, as the edge makes them."""
    return settings.resolve(flags, environ={}, dotenv=None, config_file=None)


def record(**config):
    """A manifest of this very machine."""
    return {
        **manifest.software(os.environ),
        "host": provenance.host(),
        "config": {"seed": 7, "dataset": "emnist", "reproducible": True, "threads": 4, **config},
        "plan": {"replicas": 2, "shards": 8, "global_batch": 200, "epochs": 30},
        "data": {"full_name": "emnist/balanced/3.1.0", "version": "3.1.0"},
        "devices": {"kind": "cpu"},
        "starts": [{"time": "then"}],
        "result": {"step": 6},
    }


def test_the_words_are_those_of_the_manifest_made_exact():
    """Shards and batch of the plan, whatever devices there are now; the data set in its version; the threads it had."""
    config = reproducing._words(RUN, record(batch_size_per_replica=100), now(logical_devices=4, device="cpu")).config
    assert (config.shards, config.batch_size, config.batch_size_per_replica) == (8, 200, None)
    assert (config.dataset, config.seed, config.threads, config.logical_devices) == ("emnist/balanced:3.1.0", 7, 4, 4)


@pytest.mark.parametrize(
    ("kind", "flags", "device"),
    [
        ("cpu", {}, "cpu"),
        ("cpu", {"device": "gpu"}, "gpu"),
        ("cpu", {"gpus": 2}, "auto"),
        ("gpu", {}, "auto"),
        ("gpu", {"device": "cpu"}, "cpu"),
    ],
)
def test_a_run_on_the_cpu_is_repeated_there_unless_other_devices_are_named(kind, flags, device):
    """On a machine with GPUs too, where its bits would be other ones."""
    made = record() | {"devices": {"kind": kind}}
    assert reproducing._words(RUN, made, now(**flags)).config.device == device


def test_what_is_said_now_wins():
    """Threads and the way to add up are the run's own unless they are named."""
    config = reproducing._words(RUN, record(all_reduce="one-device"), now(threads=2, data_dir=Path("/data"))).config
    assert (config.threads, config.all_reduce, config.data_dir) == (2, "one-device", Path("/data"))


def test_own_code_is_found_where_it_was_or_where_the_words_point(tmp_path, monkeypatch):
    """By its absolute path, else from the folder of now."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def build(): ...\n")
    made = record(model="net.py:build") | {"code": {"--model": "0"}, "files": {"--model": "/gone/net.py"}}
    assert reproducing._words(RUN, made, now()).config.model == "net.py:build"
    made["files"]["--model"] = str(tmp_path / "net.py")
    assert reproducing._words(RUN, made, now()).config.model == f"{tmp_path}/net.py:build"
    (tmp_path / "net.py").unlink()
    with pytest.raises(UsageError) as caught:
        reproducing._words(RUN, made, now())
    assert str(caught.value) == (
        f"--model: there is no file {tmp_path}/net.py, which the run was made with; put it back"
    )


def test_nothing_is_remarked_of_a_run_like_this_one():
    """Places and names of machines are no reason."""
    made = record()
    made["host"] = made["host"] | {"name": "elsewhere", "platform": "another"}
    assert reproducing._remarks(made) == []


def test_what_may_change_the_bits_is_remarked():
    """No --reproducible, other software or another processor, and words that changed on the way."""
    made = copy.deepcopy(record(reproducible=False, epochs=32, run="a"))
    made["packages"]["numpy"], made["host"]["processor"] = "1.0.0", "Abacus"
    made["starts"].append({"replaced": {"config": made["config"] | {"epochs": 30, "run": "b"}}})
    here = {"numpy": provenance.packages()["numpy"], "processor": provenance.host()["processor"]}
    assert reproducing._remarks(made) == [
        "the run was made without --reproducible: its bits are not promised",
        f"not as it was, so that the bits may differ: packages.numpy (1.0.0 and {here['numpy']}), host.processor "
        f"(Abacus and {here['processor']})",
        "the run was begun with other values of epochs; here it has the last ones",
    ]


def begun(folder, *, command="reproduce", result=None, **config):
    """A run folder as a command leaves it, with a checkpoint."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "step").touch()
    words = reproducing._words(RUN, record(**config), now())
    (folder / "config.json").write_bytes(settings.dump(words))
    text = json.dumps({"command": ["trainbox", command], **({"result": result} if result else {})})
    (folder / "manifest.json").write_text(text)


@pytest.mark.parametrize(
    ("there", "name"),
    [
        (None, "first-reproduced"),
        ({}, "first-reproduced"),
        ({"result": {"step": 6}}, "first-reproduced-2"),
        ({"command": "train"}, "first-reproduced-2"),
        ({"learning_rate": 0.5}, "first-reproduced-2"),
    ],
)
def test_the_new_run_has_a_folder_of_its_own(tmp_path, there, name):
    """Beside the first, numbered if need be; what a stopped reproduction of the same run left is gone on with."""
    if there is not None:
        begun(tmp_path / "first-reproduced", **there)
    words = reproducing._words(RUN, record(), now())
    chosen = reproducing._in_a_folder(tmp_path / "first", words, now(), None).config
    assert (chosen.output_dir, chosen.run) == (tmp_path, name)


def test_a_place_and_a_name_can_be_chosen(tmp_path):
    """--output-dir and --run, of which a taken one is refused."""
    words, place = reproducing._words(RUN, record(), now()), now(output_dir=tmp_path)
    assert reproducing._in_a_folder(RUN, words, place, "again").config.run == "again"
    assert reproducing._in_a_folder(RUN, words, place, None).config.output_dir == tmp_path
    begun(tmp_path / "again", command="train")
    with pytest.raises(UsageError) as caught:
        reproducing._in_a_folder(RUN, words, place, "again")
    assert str(caught.value) == f"--run again: {tmp_path}/again holds another run; choose another --run"
