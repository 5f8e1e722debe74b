"""The numbers of a run: what is stored, what a resumed run keeps, what its digest covers, what TensorBoard reads."""

import hashlib
import json
import math
import resource
import struct
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from trainbox import lines, metrics
from trainbox.errors import RunFailedError
from trainbox.metrics import MetricWriter


def written(folder, steps, *, after=0, tensorboard=False, scalars=None):
    """Metrics of these steps, written by a process that starts after step `after`."""
    writer = MetricWriter(folder, step=after, epochs_done=9, tensorboard=tensorboard)
    for step in steps:
        writer.write(step=step, epoch=1, seconds=step / 8, scalars=scalars or {"train/loss": 1 / step})
    writer.close()
    return folder / "metrics.jsonl"


def steps(folder):
    return [line["step"] for line in metrics.read(folder)]


@contextmanager
def room_for(size):
    """Files of this process cannot grow beyond `size` bytes: a disk that fills."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def test_a_line_is_one_flat_object_in_the_order_of_the_design(tmp_path):
    """Step, epoch and seconds first, then the scalars as they came."""
    path = written(tmp_path, [3], scalars={"train/loss": 0.5, "train/accuracy": 1, "gpu/0/power": None})
    assert path.read_text() == (
        '{"step": 3, "epoch": 1, "seconds": 0.375, "train/loss": 0.5, "train/accuracy": 1.0, "gpu/0/power": null}\n'
    )


def test_a_line_is_on_the_disk_when_write_returns(tmp_path):
    """A process that is killed right after a step has lost none of its lines."""
    writer = MetricWriter(tmp_path, step=0, epochs_done=9, tensorboard=False)
    writer.write(step=1, epoch=1, seconds=0.1, scalars={"train/loss": 2.0})
    assert steps(tmp_path) == [1]
    writer.close()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_comes_back_with_every_bit(tmp_path_factory, value):
    """What was computed in float32 is found again in the file, negative zero included."""
    folder = tmp_path_factory.mktemp("run")
    written(folder, [1], scalars={"train/loss": np.float32(value)})
    (line,) = metrics.read(folder)
    assert struct.pack("f", np.float32(line["train/loss"])) == struct.pack("f", value)


def test_what_is_not_finite_is_null(tmp_path):
    """Strict JSON has no NaN and no Infinity."""
    path = written(tmp_path, [1], scalars={"train/loss": math.nan, "validation/loss": -math.inf})
    assert json.loads(path.read_text(), parse_constant=pytest.fail)["train/loss"] is None
    assert '"validation/loss": null' in path.read_text()


def test_a_resumed_run_writes_each_step_once(tmp_path):
    """Lines after the checkpoint that a run goes on from are written again, not twice."""
    written(tmp_path, [1, 2, 3, 4])
    before = (tmp_path / "metrics.jsonl").read_text().splitlines()
    written(tmp_path, [3, 4, 5], after=2)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert (tmp_path / "metrics.jsonl").read_text().splitlines()[:4] == before


@pytest.mark.parametrize("torn", [b'{"step": 3, "ep', b'{"step": 3, "epoch": 1', b"\0\0\0\0", b"\xff\xfe", b"7", b"{}"])
def test_a_torn_last_line_is_removed(tmp_path, torn):
    """Half a line, or the zeros that a power cut leaves, is nobody's measurement."""
    path = written(tmp_path, [1, 2])
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert steps(tmp_path) == [1, 2]
    written(tmp_path, [], after=9)
    assert path.read_bytes() == whole


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path):
    """The next line starts on a line of its own."""
    path = written(tmp_path, [1, 2])
    path.write_bytes(path.read_bytes().rstrip())
    written(tmp_path, [3], after=2)
    assert steps(tmp_path) == [1, 2, 3]


def test_the_line_of_an_epoch_that_is_closed_again_is_there_once(tmp_path):
    """A run can be saved between an epoch's last step and its line; lines of steps and of epochs before stay."""
    written(tmp_path, [4], scalars={"train/loss": 2.0})
    written(tmp_path, [7], after=4, scalars={"interval/loss": 3.0})
    for step in (7, 8):
        writer = MetricWriter(tmp_path, step=step, epochs_done=1, tensorboard=False)
        writer.write(step=8, epoch=2, seconds=1.0, scalars={"train/loss": 1.0})
        writer.close()
    assert steps(tmp_path) == [4, 7, 8]


def test_lines_that_cannot_be_synced_are_told(tmp_path):
    """Before there is a checkpoint that they belong to; where there is no file there is nothing to sync."""
    lines.sync(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    for path, reason in ((Path("/dev/null"), "Invalid argument"), (tmp_path / "folder", "Is a directory")):
        with pytest.raises(RunFailedError) as caught:
            lines.sync(path)
        assert str(caught.value) == (
            f"cannot write {path} ({reason}): make room or make it writable, then say the same command again to go on"
        )


def test_damage_before_the_last_line_is_told_and_nothing_is_removed(tmp_path):
    """trainbox never tears a line in the middle; whoever did should know."""
    path = written(tmp_path, [1, 2])
    path.write_bytes(b"oops\n" + path.read_bytes())
    before = path.read_bytes()
    with pytest.raises(RunFailedError) as caught:
        MetricWriter(tmp_path, step=2, epochs_done=9, tensorboard=False)
    assert str(caught.value) == f"{path} is damaged at line 1 (b'oops'): mend or delete this line"
    assert path.read_bytes() == before


def test_a_full_disk_is_one_line_and_leaves_whole_lines(tmp_path):
    """The run can go on from what was written before, once there is room."""
    path = written(tmp_path, [1, 2])
    whole = path.read_bytes()
    writer = MetricWriter(tmp_path, step=2, epochs_done=9, tensorboard=False)
    with room_for(len(whole) + 20), pytest.raises(RunFailedError) as caught:
        writer.write(step=3, epoch=1, seconds=0.1, scalars={"train/loss": 2.0})
    writer.close()
    assert path.read_bytes() == whole
    assert str(caught.value) == (
        f"cannot write {path} (File too large): make room or make it writable, then say the same command again to go on"
    )


def test_a_disk_too_full_for_the_events_is_told_too(tmp_path):
    """TensorBoard's file fails as the lines do, at once and by its name."""
    writer = MetricWriter(tmp_path, step=0, epochs_done=9, tensorboard=True)
    with (
        room_for(300),
        pytest.raises(RunFailedError, match=r"cannot write .*/tensorboard/events.* \(File too large\): make"),
    ):
        writer.write(step=1, epoch=1, seconds=0.1, scalars={f"train/{n}": 2.0 for n in range(8)})
    writer.close()
    assert steps(tmp_path) == [1]


def test_metrics_that_cannot_be_opened_or_read(tmp_path):
    """A folder in the place of the file, or no folder for it, is told in one line."""
    with pytest.raises(RunFailedError, match=r"cannot write .*/gone/metrics.jsonl \(No such file or directory\): make"):
        MetricWriter(tmp_path / "gone", step=0, epochs_done=9, tensorboard=False)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(RunFailedError, match=r"cannot read .*/metrics.jsonl: Is a directory"):
        metrics.read(tmp_path)


def test_the_digest_is_over_losses_and_metrics_and_not_over_times(tmp_path):
    """Another machine, another speed, another GPU temperature: the same digest."""
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    for folder, speed in ((slow, 1.0), (fast, 9.0)):
        folder.mkdir()
        scalars = {
            "train/loss": 0.1,
            "train/examples_per_second": speed,
            "train/wait_seconds": speed,
            "test/accuracy": None,
            "gpu/0/utilization": speed,
        }
        writer = MetricWriter(folder, step=0, epochs_done=9, tensorboard=False)
        writer.write(step=1, epoch=1, seconds=speed, scalars=scalars)
        writer.close()
    covered = b'{"epoch": 1, "step": 1, "test/accuracy": null, "train/loss": 0.1}\n'
    assert metrics.digest(slow) == metrics.digest(fast) == hashlib.sha256(covered).hexdigest()


def test_the_digest_does_not_depend_on_how_often_an_interval_is_logged(tmp_path):
    """Only lines with a loss or metric of an epoch or a test count."""
    (tmp_path / "often").mkdir()
    (tmp_path / "never").mkdir()
    written(tmp_path / "often", [1, 2], scalars={"interval/loss": 0.2, "interval/learning_rate": 0.1})
    written(tmp_path / "often", [3], after=2)
    written(tmp_path / "never", [3])
    assert metrics.digest(tmp_path / "often") == metrics.digest(tmp_path / "never")


@pytest.mark.parametrize("change", [{"train/loss": 0.1 + 2**-56}, {"validation/loss": 0.1}])
def test_the_digest_tells_the_last_bit_and_the_part(tmp_path, change):
    """One bit of one loss, or its name, makes another digest."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    written(tmp_path / "a", [1], scalars={"train/loss": 0.1})
    written(tmp_path / "b", [1], scalars=change)
    assert metrics.digest(tmp_path / "a") != metrics.digest(tmp_path / "b")


def test_a_killed_and_resumed_run_has_the_digest_of_a_straight_one(tmp_path):
    """Repeated steps and a torn line leave no trace in the digest."""
    (tmp_path / "straight").mkdir()
    (tmp_path / "killed").mkdir()
    written(tmp_path / "straight", [1, 2, 3, 4])
    with written(tmp_path / "killed", [1, 2, 3]).open("ab") as file:
        file.write(b'{"step": 4, "ep')
    written(tmp_path / "killed", [3, 4], after=2)
    assert metrics.digest(tmp_path / "killed") == metrics.digest(tmp_path / "straight")


def events(folder):
    """What TensorBoard shows: the steps and values of each tag."""
    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return {
        tag: [(event.step, float(make_ndarray(event.tensor_proto))) for event in accumulator.Tensors(tag)]
        for tag in accumulator.PluginTagToContent("scalars")
    }


def test_tensorboard_reads_the_scalars(tmp_path):
    """The events hold what the lines hold, in TensorBoard's own precision; a missing reading is no event."""
    written(tmp_path, [1, 2], tensorboard=True, scalars={"train/loss": 0.1, "gpu/0/power": None})
    assert events(tmp_path) == {"train/loss": [(1, float(np.float32(0.1))), (2, float(np.float32(0.1)))]}


def test_curves_of_a_resumed_run_do_not_overlap(tmp_path):
    """Steps that a killed process wrote after the checkpoint are forgotten, even those that do not come again."""
    written(tmp_path, [1, 2, 3, 4], tensorboard=True)
    for after in (2, 2):
        written(tmp_path, [3], after=after, tensorboard=True, scalars={"train/loss": 8.0})
    assert events(tmp_path) == {"train/loss": [(1, 1.0), (2, 0.5), (3, 8.0)]}
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3


def test_event_files_sort_in_the_order_of_the_starts(tmp_path):
    """TensorBoard reads them by name; a file deleted in between changes nothing."""
    for _ in range(3):
        written(tmp_path, [], tensorboard=True)
    first = min((tmp_path / "tensorboard").iterdir())
    first.unlink()
    written(tmp_path, [], tensorboard=True)
    numbers = sorted(path.name.split(".")[3] for path in (tmp_path / "tensorboard").iterdir())
    assert numbers == ["0000000001", "0000000002", "0000000003"]
