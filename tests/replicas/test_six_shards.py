"""With --reproducible and six shards, 1, 3 and 6 replicas compute the same to the bit."""

from __future__ import annotations


def test_a_covering_set_has_the_same_bits_on_1_3_and_6_replicas(layout):
    """No tree of contiguous blocks serves both halves and thirds; this one serves thirds."""
    first, *others = (layout(replicas, 6, "reproducible") for replicas in (1, 3, 6))
    shared = [case for case in first if all(case in other for other in others)]
    assert len(shared) > 20
    for name in ("digest", "statistics", "evaluation"):
        assert [case for case in shared if any(other[case][name] != first[case][name] for other in others)] == []
