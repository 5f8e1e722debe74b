"""Two runs beside one another: the step at which they part, the verdict, and what a user reads of it."""

from __future__ import annotations

import pytest

from trainbox import comparison, verdict
from trainbox.comparison import Record

WEIGHTS, METRICS = "a" * 64, "b" * 64
EPOCH = 10


def run(
    *, steps=20, losses=None, bits=None, lines=None, weights=WEIGHTS, done=True, trace=True, place="output/x", **config
):
    """A run whose step s has loss s / 8 and bits s, but for what is given by step."""
    traced = [
        {"step": s, "loss": (losses or {}).get(s, s / 8), "bits": (bits or {}).get(s, f"{s:016x}")}
        for s in range(1, steps + 1)
    ]
    logged = {
        s: {"train/loss": s / 16, "train/examples_per_second": id(config)} for s in range(EPOCH, steps + 1, EPOCH)
    }
    for step, values in (lines or {}).items():
        logged.setdefault(step, {}).update(values)
    result = {"weights": weights, "metrics": METRICS, "step": steps, "epochs_done": steps // EPOCH}
    return Record(
        place=place,
        manifest={"config": config, "plan": {"steps_per_epoch": EPOCH}} | ({"result": result} if done else {}),
        trace=traced if trace else [],
        metrics=[{"step": s, "epoch": 1, "seconds": id(result), **values} for s, values in sorted(logged.items())],
    )


def first(found):
    part = found.parting
    return part and (part.start, part.end, part.epoch, part.value, part.pair)


CASES = {
    # what differs, and: the verdict, the last common step, where they part
    "nothing": (run(), run(), "same bits", 20, None),
    "nothing, and no trace": (run(trace=False), run(trace=False), "same bits", 20, None),
    "nothing, but only one has a trace": (run(), run(trace=False), "same bits", 20, None),
    "a loss": (run(), run(losses={11: 9.0}), "different", 20, (11, 11, 2, "loss", (11 / 8, 9.0))),
    "bits": (run(), run(bits={10: "ff"}), "different", 20, (10, 10, 1, "bits", ("000000000000000a", "ff"))),
    "the first step": (run(bits={1: "0"}), run(bits={1: "1"}), "different", 20, (1, 1, 1, "bits", ("0", "1"))),
    "several steps": (run(losses={7: 1.0, 9: 1.0}), run(), "different", 20, (7, 7, 1, "loss", (1.0, 7 / 8))),
    "a logged loss, without a trace": (
        run(trace=False), run(trace=False, lines={20: {"train/loss": 1.5}}),
        "different", 20, (11, 20, 2, "train/loss", (20 / 16, 1.5)),
    ),
    "an interval, without a trace": (
        run(trace=False, lines={5: {"interval/loss": 1.0}}), run(trace=False, lines={5: {"interval/loss": 2.0}}),
        "different", 20, (1, 5, 1, "interval/loss", (1.0, 2.0)),
    ),
    "validation alone": (
        run(lines={20: {"validation/loss": 1.0}}), run(lines={20: {"validation/loss": 2.0}}),
        "different", 20, (20, 20, 2, "validation/loss", (1.0, 2.0)),
    ),
    "validation before the steps": (
        run(lines={10: {"validation/loss": 1.0}}), run(lines={10: {"validation/loss": 2.0}}, bits={12: "0"}),
        "different", 20, (10, 10, 1, "validation/loss", (1.0, 2.0)),
    ),
    "steps before validation": (
        run(lines={10: {"validation/loss": 1.0}}), run(lines={10: {"validation/loss": 2.0}}, bits={4: "0"}),
        "different", 20, (4, 4, 1, "bits", ("0000000000000004", "0")),
    ),
    "what only one has logged": (
        run(lines={10: {"test/loss": 1.0}, 13: {"interval/loss": 1.0}}), run(), "same bits", 20, None,
    ),
    "the last weights": (run(), run(weights="c" * 64), "different", 20, None),
    "the length": (run(steps=20), run(steps=30), "different", 20, None),
    "one that is not finished": (run(), run(steps=15, done=False), "same so far", 15, None),
    "two that are not": (run(steps=17, done=False), run(steps=15, done=False), "same so far", 15, None),
    "one that is not finished, and parts": (
        run(), run(steps=15, done=False, bits={15: "0"}),
        "different", 15, (15, 15, 2, "bits", ("000000000000000f", "0")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_two_runs_part_where_they_differ_first(case):
    """By the trace exactly, else between two logged steps; whatever one of them lacks is no difference."""
    a, b, verdict_, steps, parting = CASES[case]
    found = comparison.compare(a, b)
    assert (found.verdict, found.steps, first(found)) == (verdict_, steps, parting)


def test_the_beginning_of_a_trace_may_be_missing():
    """A run that was begun by a version without traces: what both have of it is compared."""
    late = run()
    late = Record(place="late", manifest=late.manifest, trace=late.trace[12:], metrics=late.metrics)
    assert first(comparison.compare(late, run(bits={3: "0", 15: "0"})))[:2] == (15, 15)


LAST_LINES = {
    "nothing": f"same bits: weights {WEIGHTS}, metrics {METRICS}",
    "a loss": "different: first at step 11 (epoch 2), loss 1.375 and 9.0; differs: nothing that the manifests record",
    "bits": "different: first at step 10 (epoch 1), the loss is the same, its bits are not; differs: nothing that the "
    "manifests record",
    "a logged loss, without a trace": "different: first between steps 11 and 20 (epoch 2), train/loss 1.25 and 1.5; "
    "differs: nothing that the manifests record",
    "the last weights": "different: the last weights or metrics, and no step that is recorded; differs: nothing that "
    "the manifests record",
    "the length": "different: A ends at step 20 and B at step 30, the same up to step 20; differs: nothing that the "
    "manifests record",
    "one that is not finished": "same bits up to step 15, as far as both went: output/x not finished",
}


@pytest.mark.parametrize("case", LAST_LINES)
def test_the_verdict_is_one_line(case):
    """With the digests, or the step, the epoch and both values."""
    a, b, *_ = CASES[case]
    assert verdict.verdict(comparison.compare(a, b)) == LAST_LINES[case]


def test_everything_that_a_user_reads():
    """Both runs, what differs with and without effect, what was compared, and the verdict."""
    a = run(place="output/a", learning_rate=0.001, model="cnn", run="a", reproducible=True)
    b = run(place="output/b", learning_rate=0.002, model="mlp", run="b", reproducible=True, bits={1: "0"}, done=False)
    assert verdict.lines(comparison.compare(a, b)) == [
        "A  output/a: finished, 20 steps, 2 epochs",
        "B  output/b: not finished, step 20",
        "differs, and can alter the result:",
        "  config.learning_rate  0.001  0.002",
        "  config.model          cnn    mlp",
        "differs, and cannot alter the result:",
        "  config.run  a  b",
        "compared: every step up to 20, by its fingerprint",
        "different: first at step 1 (epoch 1), the loss is the same, its bits are not; differs: config.learning_rate "
        "(0.001 and 0.002), config.model (cnn and mlp)",
    ]


def test_long_lists_are_cut_and_digests_shortened():
    """As after an update of every package; a value of the manifest that was changed comes first."""
    a = run(**{f"option_{n:02}": n for n in range(20)}, digest="c" * 64)
    b = run(**{f"option_{n:02}": n + 1 for n in range(20)}, digest=None, bits={1: "0"}, trace=True)
    lines = verdict.lines(comparison.compare(a, b), changed=["config.option_19"])
    assert lines[3] == "  config.option_00  0   1"
    assert lines[15:17] == ["  and 9 more; --json lists all", "compared: every step up to 20, by its fingerprint"]
    assert lines[-1].endswith(
        "; differs: config.option_19 (changed in manifest.json after the run), config.option_00 (0 and 1), "
        "config.option_01 (1 and 2), config.option_02 (2 and 3) and 17 more"
    )
    short = verdict.named({"code.--model": ("c" * 64, None), "config.run": (True, "größer\n2")})
    assert short == r"code.--model (cccccccccccc… and -), config.run (true and größer\n2)"


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        (
            run(trace=False), run(),
            "what was logged up to step 20; every step has a fingerprint with --reproducible alone",
        ),
        (
            Record(place="a", manifest=run().manifest, trace=[], metrics=[]), run(),
            "the manifests alone; one of the runs has no record of its steps here",
        ),
    ],
)  # fmt: skip
def test_what_was_compared_is_said(a, b, line):
    """Where there is no trace, or a manifest alone."""
    assert f"compared: {line}" in verdict.lines(comparison.compare(a, b))


def test_the_same_for_programs():
    """Everything by name."""
    a, b = run(place="a", seed=1, run="a", trace=False), run(place="b", seed=2, run="b", bits={2: "0"}, done=False)
    assert comparison.compare(a, b).as_dict() == {
        "verdict": "same so far",
        "steps": 20,
        "first": None,
        "can_alter": {"config.seed": [1, 2]},
        "cannot_alter": {"config.run": ["a", "b"]},
        "runs": [
            {"run": "a", "finished": True, "step": 20, "weights": WEIGHTS, "metrics": METRICS},
            {"run": "b", "finished": False, "step": 20, "weights": None, "metrics": None},
        ],
    }
    one = comparison.compare(run(), run(losses={3: None})).as_dict()["first"]
    assert one == {"start": 3, "end": 3, "epoch": 1, "value": "loss", "pair": (3 / 8, None)}
