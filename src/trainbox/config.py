"""What a run is asked to do: every option once, with its default, its bounds and its help.

`RunConfig` is the single declaration. The command line, the environment, `.env` and TOML files are all read against it
(`trainbox.settings`), so an option added here exists everywhere.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox.option import AUTO, LARGEST, Option, option

__all__ = ["AUTO", "LARGEST", "Option", "RunConfig", "momentary", "options"]

# Beta(ALPHA, ALPHA) of a smaller one is 0 or 1, of a larger one 1/2.
ALPHA: dict[str, Any] = {"panel": "Examples", "minimum": 0.01, "maximum": 1000.0, "metavar": "ALPHA"}


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run, complete. `None` means "decided later from what is found", and the field's help says how."""

    # Data
    dataset: str = option(
        "digits",
        "Data set: digits (bundled), any of TFDS by its name, folder:PATH with a folder of images for each class, or "
        "FILE.py with one's own TFDS builder.",
        panel="Data",
    )
    data_dir: Path = option(Path("data"), "Folder that caches prepared data sets; /data in the image.", panel="Data")
    train_split: str = option(
        "train", "Training rows, in TFDS's words: train[:90%], train[1000:]+extra.", panel="Data", metavar="SPLIT"
    )
    validation_split: float = option(
        0.0,
        "Share of the training rows held out for validation; 0: --validation-rows.",
        panel="Data",
        minimum=0.0,
        maximum=1.0,
        open_maximum=True,
    )
    validation_rows: str | None = option(
        None,
        "Validation rows, such as train[90%:]. Default: the set's own validation split, if it has one.",
        panel="Data",
        metavar="SPLIT",
    )
    test_split: str | None = option(
        None, "Test rows. Default: the set's own test split, if it has one.", panel="Data", metavar="SPLIT"
    )
    inputs: str | None = option(
        None,
        "Features that the model takes, by their paths. Default: what the set says, else its one image or all numbers.",
        panel="Data",
        metavar="LIST",
    )
    label: str | None = option(
        None, "Feature to predict: a class, or a number (regression). Default: what the set says.", panel="Data"
    )
    classes: str = option(
        "declared",
        "used: number the classes that occur anew from 0, as of emnist/letters, which declares 37 and has 26.",
        panel="Data",
        choices=("declared", "used"),
    )
    resize: str | None = option(
        None, "Stretch images to this size when they are read, such as 96x128 or 64.", panel="Data", metavar="HxW"
    )
    pad_to: int | None = option(None, "Pad or cut sequences to this length.", panel="Data", minimum=1, maximum=LARGEST)
    offline: bool = option(False, "Never reach for the network; a data set must be prepared.", panel="Data")
    # Model
    model: str = option("cnn", "Model: cnn, mlp, or one's own as FILE.py:FUNCTION.", panel="Model")
    precision: str = option(
        "float32", "Precision of the computation.", panel="Model", choices=("float32", "bfloat16", "float16")
    )
    # Examples
    augment: str | None = option(
        None,
        "Change training images at random, in this order: flip, flip-vertical, crop:P (a part of the old size out of "
        "the image with a border of P pixels), rotate:DEGREES, colour:S (docs/augment.md).",
        panel="Examples",
        metavar="LIST",
    )
    mixup: float | None = option(
        None, "Mix training images and their losses in pairs, by a share from Beta(ALPHA, ALPHA).", **ALPHA
    )
    cutmix: float | None = option(None, "The same, with a box of one image in the other.", **ALPHA)
    normalise: str = option(
        "none",
        "standard: take out the mean of the training rows and divide by their deviation, by channel; none: [0, 1].",
        panel="Examples",
        choices=("none", "standard"),
    )
    class_weights: str = option(
        "none",
        "Weights of classes in the training loss: none, balanced (each class the same sum), or CLASS=WEIGHT,…; others "
        "have 1.",
        panel="Examples",
        metavar="LIST",
    )
    # Training
    epochs: int = option(30, "Passes over the training rows.", panel="Training", minimum=1, maximum=LARGEST)
    batch_size: int | str | None = option(
        None,
        "Global batch; any size on any number of devices. auto: the largest that fits, found by trying. "
        "Default: 64 rows a shard.",
        panel="Training",
        minimum=1,
        maximum=LARGEST,
        word=AUTO,
    )
    batch_size_per_replica: int | None = option(
        None, "The same, said per replica.", panel="Training", minimum=1, maximum=LARGEST
    )
    shards: int | None = option(
        None,
        "Shards V that the global batch is split into: a multiple of the replicas (more: gradient accumulation). "
        "Default: one a replica; 8 with --reproducible.",
        panel="Training",
        minimum=1,
        maximum=4096,
    )
    seed: int = option(
        1, "Seed of weights, data order, dropout and augmentation.", panel="Training", minimum=0, maximum=LARGEST
    )
    reproducible: bool = option(
        False, "The same bits on any number of equal devices that the shards can be dealt to.", panel="Training"
    )
    cpu_baseline: str = option(
        "native",
        "With --reproducible, compute as on the oldest CPU that has this: the same bits on all CPUs that have it. "
        "native: as this CPU does best.",
        panel="Training",
        choices=("native", "avx2", "avx512"),
    )
    engine: str = option(
        "trainbox", "trainbox's own loop, or Keras's fit for comparison.", panel="Training", choices=("trainbox", "fit")
    )
    early_stopping: int = option(
        0,
        "Stop after this many epochs without a better loss (validation if there is one, else train); 0: off.",
        panel="Training",
        minimum=0,
        maximum=LARGEST,
    )
    callbacks: str | None = option(
        None, "Keras callbacks: a function that returns a list of them.", panel="Training", metavar="FILE.py:FUNCTION"
    )
    # Optimizer
    optimizer: str = option("adam", "Optimizer.", panel="Optimizer", choices=("sgd", "adam", "adamw", "rmsprop"))
    learning_rate: float = option(1e-3, "Peak learning rate.", panel="Optimizer", minimum=0.0)
    momentum: float = option(
        0.0, "Momentum of sgd and rmsprop.", panel="Optimizer", minimum=0.0, maximum=1.0, open_maximum=True
    )
    weight_decay: float = option(0.0, "Decoupled weight decay a step.", panel="Optimizer", minimum=0.0)
    clip_norm: float | None = option(
        None, "Clip each variable's gradient to this norm.", panel="Optimizer", minimum=0.0, open_minimum=True
    )
    global_clip_norm: float | None = option(
        None, "Clip all gradients together to this norm.", panel="Optimizer", minimum=0.0, open_minimum=True
    )
    ema_momentum: float | None = option(
        None,
        "Keep a moving average of the weights with this momentum, such as 0.999; it is what is validated, tested and "
        "exported.",
        panel="Optimizer",
        minimum=0.0,
        maximum=1.0,
        open_minimum=True,
        open_maximum=True,
    )
    schedule: str = option(
        "constant", "Learning-rate schedule.", panel="Optimizer", choices=("constant", "cosine", "step")
    )
    warmup_epochs: float = option(0.0, "Epochs of linear warm-up from 0.", panel="Optimizer", minimum=0.0)
    decay_epochs: float = option(
        10.0, "Epochs between two drops of the step schedule.", panel="Optimizer", minimum=0.0, open_minimum=True
    )
    decay_factor: float = option(
        0.1, "Factor of each drop of the step schedule.", panel="Optimizer", minimum=0.0, maximum=1.0
    )
    # Devices
    device: str = option(
        "auto",
        "auto: the GPUs if the machine has any, else the CPU; cpu; gpu.",
        panel="Devices",
        choices=("auto", "cpu", "gpu"),
    )
    gpus: int | None = option(
        None, "Use the first N visible GPUs. Default: all.", panel="Devices", minimum=1, maximum=1024
    )
    devices: str | None = option(
        None,
        "Use these GPUs, by index as visible here or by UUID: 0,2 or once for each.",
        panel="Devices",
        metavar="LIST",
    )
    logical_devices: int | None = option(
        None,
        "With --device cpu: split the CPU into N devices, for tests and for trying things out. Default: 1.",
        panel="Devices",
        minimum=1,
        maximum=64,
    )
    strategy: str = option(
        "auto",
        "How several devices share the work (docs/strategies.md). auto: mirrored, or multi-worker in a cluster.",
        panel="Devices",
        choices=("auto", "mirrored", "towers", "batch-split", "one", "multi-worker"),
    )
    workers: str | None = option(
        None,
        "Addresses of all workers of this run, the chief's first. Default: from TF_CONFIG, or from srun.",
        panel="Devices",
        metavar="HOST:PORT,…",
    )
    worker_index: int | None = option(
        None, "The number of this worker in --workers, from 0.", panel="Devices", minimum=0, maximum=4095
    )
    worker_start_seconds: float = option(
        300.0,
        "Seconds that workers wait for one another at the start.",
        panel="Devices",
        minimum=0.0,
        open_minimum=True,
    )
    worker_timeout_seconds: float = option(
        60.0,
        "Seconds without a sign of life after which a worker is given up, and the run ends.",
        panel="Devices",
        minimum=3.0,
    )
    all_reduce: str = option(
        "auto",
        "How gradients are summed over replicas.",
        panel="Devices",
        choices=("auto", "nccl", "hierarchical", "one-device"),
    )
    threads: int = option(
        0,
        "Threads inside one operation on the CPU; 0: as many as the process may use, shared among logical devices (2 "
        "with --reproducible).",
        panel="Devices",
        minimum=0,
        maximum=1024,
    )
    # Output
    output_dir: Path = option(Path("output"), "Folder that holds the runs; /output in the image.", panel="Output")
    run: str | None = option(
        None, "Name of the run's folder. Default: the Slurm job's id, else data set, model and time.", panel="Output"
    )
    checkpoint_epochs: int = option(1, "Epochs between two checkpoints.", panel="Output", minimum=1, maximum=LARGEST)
    checkpoint_steps: int = option(
        0, "Steps between two checkpoints, besides those of epochs; 0: off.", panel="Output", minimum=0, maximum=LARGEST
    )
    checkpoint_minutes: float = option(
        0.0, "Minutes after which there is a checkpoint again, besides the others; 0: off.", panel="Output", minimum=0.0
    )
    keep: int = option(3, "Checkpoints kept, the best one besides.", panel="Output", minimum=1, maximum=LARGEST)
    log_steps: int = option(
        100,
        "Steps between two lines of metrics.jsonl; 0: one line an epoch.",
        panel="Output",
        minimum=0,
        maximum=LARGEST,
    )
    tensorboard: bool = option(True, "Write TensorBoard events too.", panel="Output")
    progress: str = option(
        "auto",
        "auto: a live display on a terminal, else one line an epoch; live; plain.",
        panel="Output",
        choices=("auto", "live", "plain"),
    )
    first_step_seconds: float = option(
        120.0,
        "Seconds without the end of the first step after which a line says where it hangs; 0: off.",
        panel="Output",
        minimum=0.0,
    )


def options() -> dict[str, Option]:
    """Every option by its field's name, in the order of declaration."""
    return {field.name: field.metadata["option"] for field in dataclasses.fields(RunConfig)}


def momentary() -> tuple[str, ...]:
    """The options that belong to the machine and the moment, not to the run: a later command on the run has its own."""
    places = ("data_dir", "output_dir", "offline", "progress")
    return tuple(name for name, option in options().items() if option.panel == "Devices" or name in places)
