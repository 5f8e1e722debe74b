"""A global batch is dealt to shards and replicas, and epochs become steps."""

from __future__ import annotations

import pytest

from trainbox import plan
from trainbox.config import RunConfig
from trainbox.errors import UsageError


@pytest.mark.parametrize(
    ("words", "replicas", "expected"),
    [
        ({}, 1, (1, 64, 64, 1)),
        ({}, 4, (4, 256, 64, 1)),
        ({"batch_size": 256}, 4, (4, 256, 64, 1)),
        ({"batch_size": 100}, 8, (8, 100, 13, 1)),
        ({"batch_size": 5}, 8, (8, 5, 1, 1)),
        ({"batch_size_per_replica": 32}, 4, (4, 128, 32, 1)),
        ({"batch_size": 64, "shards": 8}, 2, (8, 64, 8, 4)),
        ({"batch_size": 2_000_000_000}, 2, (2, 1000, 500, 1)),
        ({"batch_size_per_replica": 2_000_000_000, "shards": 8}, 4, (8, 1000, 125, 2)),
        ({"reproducible": True}, 1, (8, 512, 64, 8)),
        ({"reproducible": True, "shards": 6}, 3, (6, 384, 64, 2)),
    ],
)
def test_shards_and_rows(words, replicas, expected):
    """V = R unless said (8 with --reproducible), a shard has ceil(B / V) rows, and B is no more than all rows."""
    made = plan.make(RunConfig(**words), replicas=replicas, examples=1000)
    assert (made.shards, made.global_batch, made.rows, made.shards_per_replica) == expected


def test_steps():
    """1,797 rows in batches of 100 are 18 steps an epoch; the last one has 97."""
    made = plan.make(RunConfig(batch_size=100, epochs=3), replicas=1, examples=1797)
    assert (made.steps_per_epoch, made.total_steps) == (18, 54)


def test_a_resumed_run_keeps_its_shards():
    """The V of a run being resumed wins over the default, so that another number of devices goes on with the same."""
    assert plan.make(RunConfig(batch_size=64), replicas=2, examples=10, shards=4).shards == 4


@pytest.mark.parametrize(
    ("words", "replicas", "message"),
    [
        (
            {"shards": 8},
            3,
            "8 shards cannot be dealt evenly to 3 replicas; use --shards 6 or --shards 9, or another number of devices",
        ),
        (
            {"shards": 12, "reproducible": True},
            2,
            "--reproducible needs a power of two of shards on each replica, and 12 shards on 2 replicas make 6; "
            "use another number of devices or --shards 16",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(words, replicas, message):
    """Shards that do not fit the replicas are refused with what would."""
    with pytest.raises(UsageError) as refusal:
        plan.make(RunConfig(**words), replicas=replicas, examples=100)
    assert str(refusal.value) == message
