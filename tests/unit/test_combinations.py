"""Options that exclude or need one another are refused before anything is loaded."""

from pathlib import Path

import pytest

from trainbox.errors import UsageError
from trainbox.settings import resolve

BATCHES = "--batch-size and --batch-size-per-replica exclude each other; "
REFUSED = [
    ({"batch_size": 32, "batch_size_per_replica": 8}, BATCHES),
    ({"batch_size": "auto", "batch_size_per_replica": 8}, BATCHES),
    (
        {"batch_size": "auto", "reproducible": True},
        "--batch-size auto depends on the memory of the moment, and --reproducible on the batch; give a number",
    ),
    (
        {"batch_size": "auto", "engine": "fit"},
        "--batch-size auto is tried with trainbox's own steps, not with --engine fit; give a number",
    ),
    ({"clip_norm": 1.0, "global_clip_norm": 1.0}, "--clip-norm and --global-clip-norm exclude each other; "),
    ({"gpus": 1, "devices": "0"}, "--gpus and --devices exclude each other; "),
    ({"logical_devices": 2}, "--logical-devices needs --device cpu"),
    ({"logical_devices": 2, "device": "gpu"}, "--logical-devices needs --device cpu"),
    ({"gpus": 2, "device": "cpu"}, "--gpus contradicts --device cpu; drop one"),
    ({"devices": "0", "device": "cpu"}, "--devices contradicts --device cpu; drop one"),
    (
        {"all_reduce": "nccl", "device": "cpu"},
        "--all-reduce nccl needs GPUs; with --device cpu use hierarchical or one-device",
    ),
    (
        {"all_reduce": "one-device", "strategy": "towers"},
        "--all-reduce is how mirrored replicas add; leave it out, or use --strategy mirrored",
    ),
    (
        {"strategy": "batch-split", "engine": "fit"},
        "--strategy is trainbox's own; leave --engine fit out, or use --strategy mirrored",
    ),
    (
        {"strategy": "one", "device": "cpu", "logical_devices": 2},
        "--strategy one is a single device; leave out --gpus and --logical-devices, or --strategy",
    ),
    (
        {"strategy": "one", "devices": "0,1"},
        "--strategy one is a single device; name one in --devices, or leave out --strategy",
    ),
    ({"momentum": 0.9}, "--momentum needs --optimizer sgd or rmsprop"),
    ({"decay_epochs": 3.0}, "--decay-epochs needs --schedule step"),
    ({"decay_factor": 0.5, "schedule": "cosine"}, "--decay-factor needs --schedule step"),
    ({"warmup_epochs": 4.0, "epochs": 3}, "--warmup-epochs is longer than the run; lower it or raise --epochs"),
    ({"reproducible": True, "engine": "fit"}, "--reproducible cannot be kept by --engine fit; use --engine trainbox"),
    (
        {"cpu_baseline": "avx2"},
        "--cpu-baseline needs --reproducible, without which bits differ from run to run",
    ),
    (
        {"cpu_baseline": "avx2", "reproducible": True, "precision": "bfloat16"},
        "--cpu-baseline needs --precision float32: oneDNN has no 16-bit kernels that all these CPUs share",
    ),
    ({"mixup": 0.2, "cutmix": 1.0}, "--mixup and --cutmix exclude each other; "),
    ({"augment": "flip", "engine": "fit"}, "--augment cannot be done by --engine fit; use --engine trainbox"),
    ({"mixup": 0.2, "engine": "fit"}, "--mixup cannot be done by --engine fit; use --engine trainbox"),
    ({"cutmix": 0.2, "engine": "fit"}, "--cutmix cannot be done by --engine fit; use --engine trainbox"),
    (
        {"class_weights": "balanced", "engine": "fit"},
        "--class-weights cannot be done by --engine fit; use --engine trainbox",
    ),
    (
        {"augment": "flop"},
        "--augment has 'flop'; it takes a list of flip, flip-vertical, crop:P, rotate:DEGREES and colour:S; did you "
        "mean flip?",
    ),
    (
        {"class_weights": "1"},
        "--class-weights has '1'; it takes none, balanced, or a list of CLASS=WEIGHT with the number of a class and a "
        "weight of at least 0",
    ),
    ({"shards": 4, "engine": "fit"}, "--shards cannot be followed by --engine fit; use --engine trainbox"),
    (
        {"checkpoint_steps": 5, "engine": "fit"},
        "--checkpoint-steps cannot be kept by --engine fit, which saves after each epoch; use --engine trainbox",
    ),
    (
        {"checkpoint_minutes": 0.5, "engine": "fit"},
        "--checkpoint-minutes cannot be kept by --engine fit, which saves after each epoch; use --engine trainbox",
    ),
]


def settle(flags, **environ):
    return resolve(flags, environ=environ, dotenv=None, config_file=None)


@pytest.mark.parametrize(("flags", "message"), REFUSED)
def test_a_combination_that_cannot_be_followed_is_refused(flags, message):
    """The line names the options and the way out."""
    with pytest.raises(UsageError) as error:
        settle(flags)
    ending = "give one of them" if message.endswith("; ") else ""
    assert str(error.value) == message + ending


@pytest.mark.parametrize(
    "flags",
    [
        {"logical_devices": 2, "device": "cpu"},
        {"gpus": 2, "device": "gpu"},
        {"momentum": 0.9, "optimizer": "sgd"},
        {"momentum": 0.0},
        {"decay_epochs": 3.0, "schedule": "step"},
        {"warmup_epochs": 3.0, "epochs": 3},
        {"all_reduce": "hierarchical", "device": "cpu"},
        {"all_reduce": "hierarchical", "strategy": "mirrored"},
        {"strategy": "mirrored", "engine": "fit"},
        {"strategy": "one", "engine": "fit"},
        {"strategy": "one", "devices": "1"},
        {"class_weights": "none", "normalise": "standard", "engine": "fit"},
        {"augment": "flip,crop:2", "mixup": 0.2, "class_weights": "0=2"},
        {"reproducible": False, "engine": "fit"},
        {"checkpoint_steps": 0, "checkpoint_minutes": 0.0, "engine": "fit"},
        {"cpu_baseline": "native", "precision": "float16"},
        {"cpu_baseline": "avx2", "reproducible": True},
    ],
)
def test_a_combination_that_can_be_followed_is_taken(flags):
    """No rule refuses more than it says."""
    config = settle(flags).config
    assert {name: getattr(config, name) for name in flags} == flags


def test_the_source_is_named_where_it_is_not_the_flag(tmp_path: Path):
    """Whoever gave one flag only must learn where the other value comes from."""
    with pytest.raises(UsageError) as error:
        settle({"batch_size": 32}, TRAINBOX_BATCH_SIZE_PER_REPLICA="8")
    assert str(error.value) == (
        "--batch-size and --batch-size-per-replica (environment TRAINBOX_BATCH_SIZE_PER_REPLICA) exclude each other; "
        "give one of them"
    )
