"""Any batch on any number of replicas is the batch of one device."""

from __future__ import annotations

import math

import numpy as np
import pytest

CNN = ("cnn-16-5", "cnn-16-17", "cnn-16-33", "cnn-16-65", "cnn-16-1797", "cnn-7-17", "cnn-7-65")


def losses(result):
    """Mean loss of every step."""
    return [row[0] / row[-1] for row in result["statistics"]]


@pytest.mark.parametrize(
    ("case", "replicas"), [(case, r) for r in (2, 3, 4, 8) for case in CNN if r < 4 or case.startswith("cnn-16")]
)
def test_odd_sizes_train_like_one_device(layout, case, replicas):
    """C1, C3: losses and evaluation on R replicas are those of one to 1e-5, short last batches included."""
    one, many = layout(1)[case], layout(replicas)[case]
    assert many["replicas"] == replicas
    assert losses(many) == pytest.approx(losses(one), abs=1e-5)
    assert many["evaluation"]["loss"] == pytest.approx(one["evaluation"]["loss"], abs=1e-5)
    assert many["evaluation"]["accuracy"] == one["evaluation"]["accuracy"]


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 8])
def test_every_row_counts_once_an_epoch(layout, replicas):
    """The weights of two epochs over 1,797 rows in batches of 16 add up to 3,594: nothing dropped, nothing twice."""
    rows = layout(replicas)["cnn-16-1797"]["statistics"]
    assert [row[-1] for row in rows] == ([16.0] * 112 + [5.0]) * 2


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_uneven_batches_do_not_bias(layout, replicas):
    """C4: targets 1 … 9 and a model that answers 0 have loss 285/9 and absolute error 5, in training and evaluation."""
    result = layout(replicas)["ramp-9"]
    rows = np.array(result["statistics"][:2])
    assert rows[:, 0].sum() / rows[:, 2].sum() == pytest.approx(31.6666667, abs=1e-6)
    assert rows[:, 1].sum() / rows[:, 2].sum() == 5.0
    assert result["evaluation"] == {"loss": pytest.approx(31.6666667, abs=1e-6), "mae": 5.0}


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_loss_is_divided_once(layout, replicas):
    """C7: squared error over 1 … 8 is 25.5, not 12.75, on two replicas."""
    row = layout(replicas)["ramp-8"]["statistics"][0]
    assert row[0] / row[2] == 25.5


@pytest.mark.parametrize(
    ("case", "replicas"),
    [
        ("ramp-learns", 2),
        ("momentum", 2),
        ("clip-norm", 4),
        ("global-clip-norm", 4),
        ("weight-decay", 2),
        ("average", 2),
        ("l2", 2),
        ("activity", 2),
    ],
)
def test_replicas_reach_the_weights_of_one(layout, case, replicas):
    """C6: optimizers, clipping, averages and penalties see the total, so replicas end at the weights of one device."""
    one, many = layout(1)[case], layout(replicas)[case]
    np.testing.assert_allclose(many["weights"], one["weights"], atol=2e-6)
    assert losses(many) == pytest.approx(losses(one), abs=1e-5)
    assert many["evaluation"]["loss"] == pytest.approx(one["evaluation"]["loss"], abs=1e-5)


@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_batch_normalization_stays_finite(layout, replicas):
    """C2: a last batch of one row leaves no replica empty, so no weight becomes NaN."""
    result = layout(replicas)["batch-norm"]
    assert np.isfinite(result["weights"]).all()
    assert all(map(math.isfinite, losses(result)))


def test_frozen_weights_do_not_drift(layout):
    """On three shards, where (a + a + a) / 3 is not always a, only the frozen layer and the rate keep their bits."""
    assert layout(3)["frozen"]["unchanged"] == ["kernel", "bias", "learning_rate"]
