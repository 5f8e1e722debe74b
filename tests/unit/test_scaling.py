"""The loss scale, on the device and as the host follows it."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainbox import scaling


def test_the_host_follows_the_scale_of_the_device(monkeypatch):
    """Halved by an overflow down to 1, doubled by so many finite steps in a row up to 2^24."""
    monkeypatch.setattr(scaling, "GROWTH_STEPS", 5)
    taken = [True] * 4 + [False] * 5 + [True] * 5 + [False, True, False, False] + [True] * 130
    state, scales = tf.constant([4.0, 0.0]), []
    for was_taken in taken:
        scales.append(float(state[0]))
        state = scaling.next_state(state, tf.constant(was_taken))
    assert list(scaling.follow([4.0, 0.0], taken)) == scales
    assert np.unique(scales).tolist() == [2.0**power for power in range(25)]
