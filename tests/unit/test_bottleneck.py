"""What bounds a run, from its times and from what its GPUs told."""

import json

import pytest

from trainbox.bottleneck import Timings, judge
from trainbox.plan import Plan


def plan(replicas=1, *, shards=None, batch=256):
    """A plan of this many replicas."""
    return Plan(replicas=replicas, shards=shards or replicas, global_batch=batch, examples=10_000, epochs=1)


def timings(*, block=10.0, host=0.1, steps=1000):
    """Times of a run of 256 rows a step."""
    return Timings(steps=steps, examples=256 * steps, block_seconds=block, host_seconds=host)


def gpus(*utilization, clocks=()):
    """What a monitor tells of these."""
    clocks = clocks or [None] * len(utilization)
    return [{"utilization": u, "sm_clock_mhz": c} for u, c in zip(utilization, clocks, strict=True)]


CASES = [
    # On the CPU the times alone tell.
    (
        "compute",
        None,
        timings(),
        plan(),
        [],
        "speed: compute-bound: the host takes 1 % of the time between steps (25,347 examples/s, 10.0 ms a step of 256 "
        "rows a replica); more or faster devices help",
    ),
    (
        "input",
        None,
        timings(host=5.0),
        plan(2),
        [],
        "speed: input-bound: the host takes 33 % of the time between steps (17,067 examples/s, 10.0 ms a step of 128 "
        "rows a replica); a larger --batch-size, more CPU cores, or fewer --callbacks help, more devices do not",
    ),
    (
        "size",
        None,
        timings(steps=10_000),
        plan(2),
        [],
        "speed: too small to scale: steps are so short that launching them takes much of their time (253,465 "
        "examples/s, 1.0 ms a step of 128 rows a replica); give a larger --batch-size, or use fewer devices",
    ),
    (
        "size",
        None,
        timings(steps=10_000),
        plan(),
        [],
        "speed: too small to scale: steps are so short that launching them takes much of their time (253,465 "
        "examples/s, 1.0 ms a step of 256 rows a replica); give a larger --batch-size",
    ),
    # 10 ms for eight shards, one after the other.
    ("size", None, timings(), plan(shards=8), [], None),
    # A GPU that is busy is not too small, however short its steps.
    (
        "compute",
        None,
        timings(steps=10_000),
        plan(),
        gpus(96),
        "speed: compute-bound: the host takes 1 % of the time between steps (253,465 examples/s, 1.0 ms a step of 256 "
        "rows a replica, GPU busy 96 %); more or faster devices help, and so may --precision bfloat16",
    ),
    ("size", True, timings(steps=10_000), plan(2), gpus(40, 44), None),
    (
        "input",
        True,
        timings(),
        plan(2),
        gpus(40, 44),
        "speed: input-bound: GPUs wait for rows within steps (25,347 examples/s, 10.0 ms a step of 128 rows a replica, "
        "2 GPUs busy 42 %); more CPU cores help, more GPUs do not",
    ),
    # What no GPU tells is as on the CPU.
    ("compute", None, timings(), plan(2), gpus(None, None), None),
    ("compute", None, timings(), plan(2), gpus(95, None), None),
]


@pytest.mark.parametrize(("bound", "balanced", "times", "made", "told", "line"), CASES)
def test_what_bounds_a_run(bound, balanced, times, made, told, line):
    """The kind, and the line with its figures."""
    verdict = judge(times, made, told)
    assert (verdict.bound, verdict.balanced) == (bound, balanced)
    assert line is None or verdict.lines[0] == line
    assert json.loads(json.dumps(verdict.as_dict(), allow_nan=False))["bound"] == bound


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (gpus(94, 97, 96), "GPUs: balanced, busy 94 to 97 %"),
        (
            gpus(95, 97, 61),
            "GPUs: not balanced: GPU 2 was busy 61 %, the others 96 %; look for another process on it, its power limit "
            "and its cooling",
        ),
        # The others wait for the slow one in an all-reduce, and are busy with that.
        (
            gpus(99, 99, clocks=[1200, 1905]),
            "GPUs: not balanced: GPU 0 had an SM clock of 1200 MHz, the others 1905 MHz; look for another process on "
            "it, its power limit and its cooling",
        ),
        (gpus(None, None, clocks=[1800, 1905]), "GPUs: balanced"),
        (gpus(95, None, 80), "GPUs: balanced, busy 80 to 95 %"),
    ],
)
def test_whether_gpus_are_balanced(told, line):
    """Which one is not, and by how much; what one of them does not tell is left out."""
    verdict = judge(timings(), plan(len(told)), told)
    assert verdict.lines[1:] == (line,)
    assert verdict.balanced == ("not balanced" not in line)


def test_a_short_run_tells_nothing():
    """And keeps no figures that would mislead."""
    verdict = judge(timings(block=1.0, steps=50), plan())
    assert verdict.as_dict() == {
        "bound": "unknown",
        "balanced": None,
        "lines": ["speed: too short to tell what bounds it (50 steps in 1.1 s after the first block)"],
    }
    assert judge(timings(steps=19), plan()).bound == "unknown"


def test_the_first_block_and_what_is_between_epochs_do_not_count():
    """A block compiles, and the time before the first block of an epoch is that of a validation."""
    timings = Timings()
    timings.block(began=0.0, ended=60.0, steps=1, examples=64)
    timings.block(began=60.5, ended=61.5, steps=4, examples=256)
    timings.pause()
    timings.block(began=90.0, ended=92.0, steps=8, examples=512)
    timings.block(began=92.25, ended=93.25, steps=4, examples=200)
    assert (timings.steps, timings.examples, timings.block_seconds, timings.host_seconds) == (16, 968, 4.0, 0.75)
