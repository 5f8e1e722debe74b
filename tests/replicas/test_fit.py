"""Keras's fit behind `--engine fit`: the same numbers where it can, a line of words where it cannot."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from trainbox import fit, models, plan
from trainbox.config import RunConfig
from trainbox.errors import UsageError


@functools.cache
def finished(replicas):
    worker = Path(__file__).with_name("fit_worker.py")
    environ = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, str(worker), str(replicas)]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)


def trained(replicas):
    done = finished(replicas)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def losses(logs):
    return [log["loss"] for log in logs]


@pytest.mark.parametrize("replicas", [1, 2])
def test_fit_and_the_own_loop_agree(replicas):
    """C6: the same seed, rows and order give the same loss in every epoch to 1e-5, on one device and on two."""
    result = trained(replicas)
    assert result["replicas"] == replicas
    assert losses(result["logs"]) == pytest.approx(result["step"], abs=1e-5)
    assert losses(result["logs"]) == pytest.approx(losses(trained(1)["logs"]), abs=1e-5)


def test_a_resumed_run_goes_on_as_if_nothing_happened():
    """C9, D3: from the variables after epoch 1 of 3, another model has the straight run's numbers, on two replicas."""
    result = trained(2)
    assert result["on"] == 2
    assert result["resumed"] == result["logs"][1:]


def test_every_batch_is_announced():
    """The hook comes before each batch, counted within its epoch."""
    assert trained(2)["batches"] == [0, 1, 2, 3] * 3


def test_a_stop_request_gets_through():
    """What the hook raises in the middle of an epoch ends it."""
    assert trained(2)["stopped"] == "stopped"


def test_a_loss_that_is_not_finite_ends_the_run():
    """An epoch that diverged is told, and not saved."""
    assert trained(1)["diverged"] in [
        f"the loss is {loss} in epoch 1; the last good checkpoint is kept; lower --learning-rate, or look at the data"
        for loss in ("nan", "inf")
    ]


def test_half_precision_is_scaled_by_keras():
    """In float16 on one device the checkpoint holds the variables of Keras's loss scaling too."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = models.build("cnn", input_shape=(8, 8, 1), num_classes=10)
    finally:
        keras.config.set_dtype_policy(policy)
    inner = keras.optimizers.SGD(momentum=0.9)
    optimizer = fit.prepare(model, inner, gives_logits=True)
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    assert len(optimizer.variables) > len(inner.variables) == 2 + 6


def message_of(call, *arguments, **options):
    with pytest.raises(UsageError) as raised:
        call(*arguments, **options)
    return str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 8}, "batch 8 is not divisible by 3 replicas; use 6 or 9"),
        ({"batch_size": 2}, "batch 2 is not divisible by 3 replicas; use 3"),
        (
            {"clip_norm": 0.5},
            "--clip-norm 0.5 does not go with --engine fit on 3 replicas: Keras clips each replica's gradient before "
            "it adds them; use --engine trainbox",
        ),
        (
            {"global_clip_norm": 2},
            "--global-clip-norm 2 does not go with --engine fit on 3 replicas: Keras clips each replica's gradient "
            "before it adds them; use --engine trainbox",
        ),
        (
            {"precision": "float16"},
            "--precision float16 does not go with --engine fit on 3 replicas: Keras looks for an overflow on the first "
            "one only; use bfloat16, or use --engine trainbox",
        ),
        (
            {"checkpoint_epochs": 5},
            "--checkpoint-epochs 5 does not go with --engine fit, which cannot resume inside an epoch and saves after "
            "each; leave it out, or use --engine trainbox",
        ),
    ],
)
def test_what_fit_cannot_do_is_refused(options, message):
    """C3, C8: known from the options and the number of replicas, before there are data."""
    assert message_of(fit.refuse, RunConfig(engine="fit", **options), replicas=3) == message


@pytest.mark.parametrize("options", [{"batch_size": 7}, {"clip_norm": 1.0}, {"precision": "float16"}])
def test_one_device_can_do_all_of_it(options):
    """The refusals are about several replicas."""
    fit.refuse(RunConfig(engine="fit", **options), replicas=1)
    fit.refuse(RunConfig(engine="fit"), replicas=3)
    fit.refuse(RunConfig(engine="fit", batch_size_per_replica=7, precision="bfloat16"), replicas=3)


def rows(examples, batch, *, replicas=2, shards=None):
    return plan.Plan(replicas=replicas, shards=shards or replicas, global_batch=batch, examples=examples, epochs=1)


@pytest.mark.parametrize(
    ("examples", "batch", "left", "remedy"),
    [
        (17, 8, 1, "use --batch-size 6, or --engine trainbox"),
        (33, 16, 1, "use --batch-size 14, or --engine trainbox"),
        (5, 8, 5, "use --engine trainbox"),
        (3, 4, 3, "use --engine trainbox"),
    ],
)
def test_rows_that_fit_cannot_deal_are_refused(examples, batch, left, remedy):
    """C1, C3: an empty replica, or a first batch of unequal parts; a batch size that works is named if one is near."""
    assert message_of(fit.refuse_rows, rows(examples, batch)) == (
        f"--engine fit cannot deal a batch of {left} rows, of {examples} in batches of {batch}, to 2 replicas; {remedy}"
    )


@pytest.mark.parametrize(("examples", "batch"), [(16, 8), (20, 8), (19, 8), (4, 8)])
def test_rows_that_fit_can_deal_pass(examples, batch):
    """Every replica has a row in every batch."""
    fit.refuse_rows(rows(examples, batch))


def test_shards_of_the_other_engine_are_refused():
    """A run begun with more shards than replicas cannot be gone on with by fit."""
    assert message_of(fit.refuse_rows, rows(64, 16, replicas=1, shards=8)) == (
        "the run has 8 shards on 1 replicas, and --engine fit knows no shards; use --engine trainbox"
    )


def test_an_uneven_last_batch_is_announced():
    """What Keras does differently, and only that, is said."""
    assert fit.notice(rows(19, 8)) == (
        "--engine fit averages the replicas' means: the 3 rows of the last batch do not weigh the same"
    )
    assert fit.notice(rows(18, 8)) is None
    assert fit.notice(rows(19, 8, replicas=1)) is None
