"""Rows become batches of full shape in which each real row counts once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainbox import plan
from trainbox.config import RunConfig
from trainbox.data import pipeline


@given(examples=st.integers(1, 200), batch=st.integers(1, 70), shards=st.integers(1, 9), seed=st.integers(0, 3))
def test_an_epoch_is_every_row_once(examples, batch, shards, seed):
    """Whatever sizes: rows with weight 1 are each row of the order once and in order; all others have weight 0."""
    made = plan.make(RunConfig(batch_size=batch, shards=shards), replicas=1, examples=examples)
    order = pipeline.epoch_order(made, seed=seed, epoch=0)
    indices, weights = pipeline.deal(order, made, first_step=0, steps=made.steps_per_epoch)
    assert indices.shape == weights.shape == (made.steps_per_epoch, shards, made.rows)
    assert indices[weights == 1].tolist() == order.tolist()
    assert set(np.unique(weights)) <= {0.0, 1.0}


def test_spare_rows_are_real_rows_of_the_same_batch():
    """A last batch of 1 row in 4 shards of 2: that row eight times, once with weight."""
    made = plan.make(RunConfig(batch_size=8, shards=4), replicas=1, examples=9)
    indices, weights = pipeline.deal(np.arange(9, dtype=np.int32), made, first_step=1, steps=1)
    assert indices.ravel().tolist() == [8] * 8
    assert weights.ravel().tolist() == [1.0] + [0.0] * 7


def test_a_batch_does_not_depend_on_its_block():
    """Steps dealt one by one are those dealt together."""
    made = plan.make(RunConfig(batch_size=7), replicas=1, examples=50)
    order = pipeline.epoch_order(made, seed=1, epoch=3)
    together, _ = pipeline.deal(order, made, first_step=0, steps=made.steps_per_epoch)
    alone = [pipeline.deal(order, made, first_step=s, steps=1)[0][0] for s in range(made.steps_per_epoch)]
    assert (together == np.stack(alone)).all()


@pytest.mark.parametrize(("rows", "share", "held"), [(100, 0.1, 10), (3, 0.01, 1), (2, 0.99, 1)])
def test_held_out_rows_are_apart(rows, share, held):
    """Validation and training rows share nothing, lose nothing, and are the same for the same seed."""
    split = pipeline.Split(inputs=np.zeros((rows, 1, 1, 1), np.uint8), labels=np.arange(rows, dtype=np.int32))
    training, validation = pipeline.hold_out(split, share=share, seed=1)
    assert len(validation) == held
    assert sorted([*training.rows.tolist(), *validation.rows.tolist()]) == list(range(rows))
    assert validation.rows.tolist() == pipeline.hold_out(split, share=share, seed=1)[1].rows.tolist()
