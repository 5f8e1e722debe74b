"""What is read of GPUs while they train: through the real binding on described GPUs, and what is made of it."""

import json
import os
import subprocess
import sys

import pytest

from trainbox.monitor import NOTHING, Monitor, probes

# Asks each of the GPUs so often; gives the readings and the lines that were told.
PROGRAM = """
import json, sys
from trainbox import monitor
told = []
probes = monitor.probes(sys.argv[2].split(","), tell=told.append)
print(json.dumps([[[dict(probe()) for probe in probes] for _ in range(int(sys.argv[1]))], told]))
assert "tensorflow" not in sys.modules
"""
A, B = "GPU-a0000000", "GPU-b0000000"
TWO = f"""gpu 0:af.0 0 -1 85899345920 9.0 {B} NVIDIA H100
utilization 40 1
power 99500
clocks 1200 1200 2619 900
gpu 0:3b.0 0 -1 85899345920 9.0 {A} NVIDIA H100
used 1073741824
utilization 97 40
power 312500
temperature 61
clocks 1980 1980 2619 1650
"""
WHOLE = {
    "utilization": 97,
    "memory_bytes": 1073741824,
    "memory_total_bytes": 85899345920,
    "power_watts": 312.5,
    "temperature": 61,
    "sm_clock_mhz": 1980,
    "memory_clock_mhz": 2619,
}


@pytest.fixture
def asked(nvml):
    """The readings of each round, and what was told, in a new process."""

    def ask(description, *uuids, times=1):
        words = [sys.executable, "-c", PROGRAM, str(times), ",".join(uuids)]
        child = subprocess.run(words, env={**os.environ, **nvml(description)}, capture_output=True, text=True)
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout)

    return ask


def test_gpus_are_found_by_uuid_and_not_by_place(asked):
    """NVML lists B first, and the run has A first; what B does not tell is null."""
    rounds, told = asked(TWO, A, B)
    partial = {"utilization": 40, "memory_bytes": 0, "power_watts": 99.5, "temperature": None, "sm_clock_mhz": 1200}
    assert rounds == [[WHOLE, WHOLE | partial]]
    assert told == []


def test_a_mig_instance_tells_what_nvml_gives_for_it(asked):
    """Its own memory, and no power: that is the GPU's."""
    mig = "gpu 0:3b.0 0 1 85899345920 9.0 GPU-a NVIDIA H100\npower 312500\nmig 1 0 10737418240 MIG-a1 H100 1g\nused 7\n"
    rounds, told = asked(mig, "MIG-a1")
    assert rounds == [[dict(NOTHING) | {"memory_bytes": 7, "memory_total_bytes": 10737418240}]]
    assert told == []


def test_a_lost_gpu_is_told_once_and_is_null_from_then_on(asked):
    """At its second sample; the other GPU goes on."""
    rounds, told = asked(TWO + "after 1 UtilizationRates\nanswer * 15\n", A, B, times=4)
    assert [first for first, _ in rounds] == [WHOLE] + [dict(NOTHING)] * 3
    assert [second["utilization"] for _, second in rounds] == [40] * 4
    assert told == [
        f"GPU 0 ({A}) cannot be read by NVML (GPU is lost): all its readings are missing from now on",
    ]


def test_a_failure_that_comes_later_is_told_once(asked):
    """Only what fails is null."""
    rounds, told = asked(TWO + "after 1 PowerUsage\nanswer PowerUsage 999\nanswer Temperature 999\n", A, times=4)
    assert [(first["power_watts"], first["utilization"]) for (first,) in rounds] == [(312.5, 97)] + [(None, 97)] * 3
    assert told == [
        f"GPU 0 ({A}) cannot be read by NVML (Unknown Error): some of its readings may be missing from now on",
    ]


def test_a_gpu_that_nvml_does_not_know_is_told(asked):
    """And so is an NVML that does not start, or a GPU whose UUID nobody knows."""
    assert asked(TWO, "GPU-c", times=2) == [
        [[dict(NOTHING)]] * 2,
        ["GPU 0 (GPU-c) cannot be read by NVML (Not Found): all its readings are missing from now on"],
    ]
    assert asked("init 999\n", A) == [[[]], ["the GPUs are not sampled: NVML does not start (Unknown Error)"]]
    told = []
    assert probes(["1", "0"], tell=told.append) == []
    assert told == [
        "the GPUs are not sampled: only CUDA knows which GPU 1 is; let CUDA_DEVICE_ORDER be PCI_BUS_ID, or name them "
        "by UUID"
    ]


def reader(*watts):
    """A probe that tells these one after the other, and nothing else."""
    given = iter(watts)
    return lambda: dict(NOTHING) | {"power_watts": next(given)}


def test_lines_have_means_and_peaks_since_the_last_one():
    """A sample without a value counts for nothing, and a line without any has null."""
    monitor = Monitor([reader(100, 300, None, 50), reader(None, None, None, 7)])
    for _ in range(3):
        monitor.sample()
    first = monitor.take()
    assert (first["gpu/0/power_watts"], first["gpu/0/power_watts_peak"]) == (200, 300)
    assert (first["gpu/1/power_watts"], first["gpu/1/power_watts_peak"]) == (None, None)
    monitor.sample()
    second, third = monitor.take(), monitor.take()
    assert monitor.latest()["gpu/0/power_watts"] == 50
    assert (second["gpu/0/power_watts"], second["gpu/1/power_watts"]) == (50, 7)
    assert set(third.values()) == {None}
    assert [gpu["power_watts"] for gpu in monitor.whole()] == [150, 7]
    monitor.begin_whole()
    assert [gpu["power_watts"] for gpu in monitor.whole()] == [None, None]


def test_a_slow_driver_is_asked_less_often():
    """A sample that keeps a core busy for 0.1 s comes every 20 s: 0.5 % of a core, whatever the driver does."""
    waits, clock = [], iter([0.0, 0.001, 5.0, 5.1, 9.0, 9.25])

    def wait(seconds):
        waits.append(round(seconds, 6))
        return len(waits) == 3

    Monitor([reader(1, 2, 3)], wait=wait, busy=lambda: next(clock)).run()
    assert waits == [1.0, 20.0, 50.0]


def test_without_gpus_nothing_is_sampled():
    """No thread, and no scalars."""
    monitor = Monitor([])
    monitor.start()
    assert (monitor.take(), monitor.latest(), monitor.whole()) == ({}, {}, [])


# A run's own sampler, writer and digest, on GPUs that a file describes.
WATCHED = """
import sys, time
from pathlib import Path
from trainbox import metrics
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.display import open_display
from trainbox.jobs import watching
selection = Selection(kind="gpu", replicas=2, visible_devices=sys.argv[1], names=("H100",) * 2, notice="")
display = open_display("plain", stream=sys.stdout, environ={})
folder = Path(sys.argv[2])
writer = metrics.MetricWriter(folder, step=0, epochs_done=0, tensorboard=True)
with watching.begin(RunConfig(), selection, display) as watched:
    while not watched.monitor.latest():
        time.sleep(0.005)
    scalars = {"train/loss": 0.5, **watched.monitor.take()}
    writer.write(step=1, epoch=1, seconds=1.0, scalars=scalars)
    display.epoch(epoch=0, epochs=1, seconds=1.0, scalars=scalars)
writer.close()
print(metrics.digest(folder))
assert "tensorflow" not in sys.modules
"""


def test_what_gpus_do_is_in_the_metrics_and_not_in_their_digest(nvml, tmp_path):
    """By the replica's number, null for what is missing; two runs that computed the same stay the same."""
    said, lines = [], []
    for name, description in (("one", TWO), ("two", TWO.replace("power 312500", "power 100000"))):
        (tmp_path / name).mkdir()
        words = [sys.executable, "-c", WATCHED, f"{A},{B}", str(tmp_path / name)]
        child = subprocess.run(words, env={**os.environ, **nvml(description)}, capture_output=True, text=True)
        assert child.returncode == 0, child.stderr
        said.append(child.stdout.splitlines())
        lines.append(json.loads((tmp_path / name / "metrics.jsonl").read_text()))
    gpu = {name: value for name, value in lines[0].items() if name.startswith("gpu/0/")}
    peaks = {"gpu/0/memory_bytes_peak": 1073741824, "gpu/0/power_watts_peak": 312.5, "gpu/0/temperature_peak": 61}
    assert gpu == {f"gpu/0/{name}": value for name, value in WHOLE.items()} | peaks
    assert [line["gpu/0/power_watts"] for line in lines] == [312.5, 100]
    assert (lines[0]["gpu/1/utilization"], lines[0]["gpu/1/temperature"]) == (40, None)
    assert said[0] == ["epoch 1/1  loss 0.5000  2 GPUs 40 to 97 % 1.0 GiB  1.0 s", said[1][1]]
