"""Whether what is asked for is still the same run, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json

import pytest

from trainbox.config import RunConfig
from trainbox.errors import UsageError
from trainbox.jobs import resume

PLAN = {"replicas": 2, "shards": 4, "global_batch": 256, "examples": 1000, "epochs": 3}


def finished(folder, **result):
    """The folder of a run of 3 epochs that is done."""
    record = {"plan": PLAN, "result": {"epochs_done": 3, "stopped_early": False, **result}}
    (folder / "manifest.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"epochs": 3}, "already complete (3/3)"),
        ({"epochs": 2, "batch_size": 256}, "already complete (3/2)"),
        ({"epochs": 3, "shards": 4, "batch_size_per_replica": 128}, "already complete (3/3)"),
        ({"epochs": 4}, None),
        ({"epochs": 4, "batch_size": 32}, None),
    ],
)
def test_a_finished_run_is_complete_with_its_own_batch_and_shards(tmp_path, words, said):
    """However they are said; with more epochs it goes on, and its checkpoint is compared then."""
    assert resume.completed(finished(tmp_path), RunConfig(**words)) == said


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        ({"batch_size": 32}, "the global batch was 256 and is 32"),
        ({"batch_size_per_replica": 64}, "the global batch was 256 and is 128"),
        ({"shards": 8, "batch_size": 256}, "the number of shards was 4 and is 8"),
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_a_finished_run_is_not_complete_with_another_batch(tmp_path, words, difference, early):
    """What would have been refused before its end is refused after it."""
    with pytest.raises(UsageError) as refusal:
        resume.completed(finished(tmp_path, stopped_early=early), RunConfig(epochs=3, **words))
    assert str(refusal.value).startswith(f"{tmp_path} holds a run that cannot go on like this: {difference}; say it as")


def test_the_digest_of_the_options_is_over_what_decides_a_result():
    """Places, devices, batch (compared as a plan) and how often is saved or logged are not in it."""
    same = RunConfig(epochs=9, keep=1, checkpoint_steps=7, checkpoint_minutes=0.5, log_steps=1, batch_size=8, threads=3)
    same = dataclasses.replace(same, first_step_seconds=9.0)
    assert resume.digest(same) == resume.digest(RunConfig())
    others = [RunConfig(seed=2), RunConfig(learning_rate=0.01), RunConfig(reproducible=True), RunConfig(model="mlp")]
    assert len({resume.digest(config) for config in (RunConfig(), *others)}) == 5


def test_other_options_are_refused_though_config_json_is_lost(tmp_path):
    """By the digest in the checkpoint."""
    before, now = resume.digest(RunConfig()), resume.digest(RunConfig(seed=2))
    resume.check_digest(tmp_path, RunConfig(), before=before)
    with pytest.raises(UsageError) as refusal:
        resume.check_digest(tmp_path, RunConfig(seed=2), before=before)
    assert str(refusal.value).startswith(
        f"{tmp_path} holds a run that cannot go on like this: the digest of its options was {before[:12]} and is "
        f"{now[:12]}; say it as it was"
    )
