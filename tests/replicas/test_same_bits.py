"""With --reproducible and eight shards, 1, 2, 4 and 8 replicas compute the same to the bit."""

from __future__ import annotations

import numpy as np

REPLICAS = (1, 2, 4, 8)


def test_a_covering_set_has_the_same_bits_on_1_2_4_and_8_replicas(layout):
    """Variables, the statistics of every step and the evaluation, for each pair of layers, optimizers and options."""
    layouts = [layout(replicas, 8, "reproducible") for replicas in REPLICAS]
    parted = []
    for case in layouts[0]:
        first, *others = (
            {name: results[case][name] for name in ("digest", "statistics", "taken", "bits", "evaluation")}
            for results in layouts
            if case in results
        )
        assert others, case
        assert np.isfinite(layouts[0][case]["weights"]).all(), case
        parted += [case] * any(other != first for other in others)
    assert len(layouts[0]) > 20
    assert parted == []


def test_an_overflow_skips_the_step_everywhere(layout):
    """float16: steps that overflow are not taken on any replica, and the weights stay finite."""
    for replicas in (1, 4):
        result = layout(replicas, 8, "reproducible")["float16-overflow"]
        assert result["taken"][0] is False
        assert len(result["bits"]) == len(result["taken"])
        assert np.isfinite(result["weights"]).all()


def test_an_infinite_gradient_on_one_replica_skips_its_step_everywhere(layout):
    """float16: of the three steps of an epoch, the one with the bad row is skipped, wherever that row is computed."""
    for replicas in (1, 4):
        result = layout(replicas, 8, "reproducible")["float16-planted"]
        assert [result["taken"][:3].count(False), result["taken"][3:].count(False)] == [1, 1]
        assert np.isfinite(result["weights"]).all()
