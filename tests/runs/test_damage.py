"""Damaged checkpoints and changed words: what is lost is named, and a run never becomes another one silently."""

from __future__ import annotations

import json
import shutil

import pytest

from trainbox import checkpoint
from trainbox.run_folder import atomic_write


@pytest.fixture(scope="module")
def base(place):
    """A run of 5 epochs, all of whose checkpoints are kept, and what it became after the sixth."""
    assert place.trainbox("train", "--run", "base", "--epochs", "5", "--keep", "5").ended == 0
    shutil.copytree(place.run("base").path, place.run("six").path)
    assert place.trainbox("train", "--run", "six", "--epochs", "6", "--keep", "6").ended == 0
    return place.run("base")


@pytest.fixture
def copy(place, base, request):
    """A copy of the run of 5 epochs, to be damaged."""
    run = place.run(request.node.name)
    shutil.copytree(base.path, run.path)
    return run


def rewrite(path, version):
    """Save the checkpoint again as this version would."""
    with pytest.MonkeyPatch.context() as patch:
        found = checkpoint.read(path)
        patch.setattr(checkpoint, "FORMAT", version)
        checkpoint.save(path.parent, step=found.step, arrays=found.arrays, state=found.state, write=atomic_write)


def forget_result(run):
    """Make it a run that was killed just before its end."""
    manifest = json.loads((run.path / "manifest.json").read_text())
    del manifest["result"]
    (run.path / "manifest.json").write_text(json.dumps(manifest))


def test_damaged_checkpoints_are_named_and_the_last_good_one_is_used(place, copy):
    """D2: cut, empty, a flipped bit and garbage; the run goes on from the fifth, to the weights of an undamaged one."""
    cut, empty, flipped, garbage, _ = copy.checkpoints
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    empty.write_bytes(b"")
    data = bytearray(flipped.read_bytes())
    data[-1000] ^= 1
    flipped.write_bytes(data)
    garbage.write_bytes(b"\xff" * 5000)
    leftover = copy.path / "checkpoints" / ".step-0000000999.safetensors.1.trainbox-tmp"
    leftover.write_bytes(b"half")
    command = place.trainbox("train", "--run", copy.path.name, "--epochs", "6", "--keep", "2")
    assert (command.ended, command.err) == (0, "")
    named = [line for line in command.out.splitlines() if "is damaged" in line]
    assert len(named) == 4
    for line, path in zip(named, (cut, empty, flipped, garbage), strict=True):
        assert line.startswith(f"checkpoint output/{path.relative_to(copy.path.parent)} is damaged (")
        assert line.endswith("; trying the one before it")
    assert "going on from step 23 (1 of 6 epochs done)" in command.out.splitlines()
    assert copy.result["weights"] == place.run("six").result["weights"]
    assert copy.steps == [138, 115]
    assert not leftover.exists()


def test_a_damaged_checkpoint_does_not_push_out_a_good_one(place, copy):
    """With one checkpoint to keep, the one that is saved stays, not the damaged one of a later step."""
    for path in copy.checkpoints[:2]:
        path.write_bytes(b"")
    forget_result(copy)
    command = place.trainbox("train", "--run", copy.path.name, "--epochs", "4", "--keep", "1")
    assert (command.ended, copy.steps) == (0, [92])


def test_with_all_checkpoints_damaged_training_does_not_begin_again(place, copy):
    """D2: one line, exit 1, and the files are left for the user to look at."""
    for path in copy.checkpoints:
        path.write_bytes(path.read_bytes()[:-1])
    command = place.trainbox("train", "--run", copy.path.name, "--epochs", "6")
    folder = f"output/{copy.path.name}/checkpoints"
    assert (command.ended, command.complaint) == (
        1,
        f"all 5 checkpoints in {folder} are damaged; delete them to start the run again from step 0",
    )
    assert len(copy.steps) == 5


def test_deleted_metrics_do_not_keep_a_run_from_its_result(place, copy):
    """Killed before its result was written, its metrics lost: it is tested again and complete."""
    (copy.path / "metrics.jsonl").unlink()
    forget_result(copy)
    command = place.trainbox("train", "--run", copy.path.name, "--epochs", "5")
    assert (command.ended, command.err) == (0, "")
    assert copy.result["epochs_done"] == 5
    assert "test/accuracy" in copy.result


CHANGES = [
    (("--learning-rate", "0.01"), "--learning-rate was 0.001 and is 0.01"),
    (("--seed", "2", "--optimizer", "sgd"), "--seed was 1 and is 2; --optimizer was adam and is sgd"),
    (("--model", "mlp"), "--model was cnn and is mlp"),
    (("--batch-size", "32", "--epochs", "6"), "the global batch was 64 and is 32"),
    (("--shards", "2", "--batch-size", "64", "--epochs", "6"), "the number of shards was 1 and is 2"),
]


@pytest.mark.parametrize(("words", "difference"), CHANGES)
def test_other_words_are_refused_with_both_values(place, base, words, difference):
    """A run cannot become another one: exit 2, and it stays as it was."""
    files = [path for path in base.path.rglob("*") if path.is_file() and path.name not in (".lock", "train.log")]
    before = [path.read_bytes() for path in files]
    command = place.trainbox("train", "--run", "base", *words)
    assert (command.ended, command.complaint) == (
        2,
        f"output/base holds a run that cannot go on like this: {difference}; say it as it was, go on "
        "in a new run with --fork NAME, or begin another --run",
    )
    assert before == [path.read_bytes() for path in files]


def test_a_name_is_free_until_something_is_saved_under_it(place):
    """A run that failed over a wrong word can be begun again with the right one."""
    wrong = place.trainbox("train", "--run", "corrected", "--epochs", "1", "--dataset", "digitz")
    assert wrong.ended == 4
    assert wrong.complaint.startswith("unknown data set 'digitz'; the nearest that TFDS 4.9.10 has: digits, ")
    assert not place.run("corrected").path.exists()
    assert place.trainbox("train", "--run", "corrected", "--epochs", "1").ended == 0


def test_a_changed_option_is_seen_without_config_json(place, copy):
    """The checkpoint has a digest of the options."""
    (copy.path / "config.json").unlink()
    words = ("train", "--run", copy.path.name, "--epochs", "6")
    command = place.trainbox(*words, "--learning-rate", "0.01")
    assert command.ended == 2
    assert "cannot go on like this: the digest of its options was " in command.complaint
    assert place.trainbox(*words).ended == 0
    assert copy.result["weights"] == place.run("six").result["weights"]


def test_a_run_of_another_version_is_left_alone(place, copy):
    """Exit 2 and one line; its checkpoints stay for the version that wrote them."""
    newest = copy.checkpoints[0]
    rewrite(newest, "trainbox-1")
    command = place.trainbox("train", "--run", copy.path.name, "--epochs", "6")
    assert len(copy.steps) == 5
    assert (command.ended, command.complaint) == (
        2,
        f"checkpoint output/{newest.relative_to(copy.path.parent)} has format 'trainbox-1', not 'trainbox-2'; use the "
        "version that wrote it",
    )


def test_one_job_at_a_time_is_let_into_a_run(place):
    """The second one is told who is there; when that one is killed the folder is free, and the run goes on."""
    run = place.run("busy")
    first = place.start("train", "--run", "busy", "--epochs", "100000").until(lambda: run.steps)
    second = place.trainbox("train", "--run", "busy")
    assert second.ended == 2
    assert second.complaint.startswith(f"output/busy is in use by pid {first.process.pid} on ")
    first.process.kill()
    first.wait()
    epochs = str(run.steps[0] // 23 + 1)
    assert place.trainbox("train", "--run", "busy", "--epochs", epochs).ended == 0
