"""The trace of a run: its lines, and what a resumed run keeps of them."""

import json
import math

import pytest

from trainbox import trace
from trainbox.errors import RunFailedError
from trainbox.trace import TraceWriter


def written(folder, steps, *, after=0):
    """The trace of these steps, in one block, by a process that starts after step `after`."""
    writer = TraceWriter(folder, step=after)
    writer.write(
        first_step=after + 1, statistics=[(step / 8, 3.0, 8.0) for step in steps], bits=[-step for step in steps]
    )
    writer.close()
    return folder / "trace.jsonl"


def test_a_step_leaves_its_mean_loss_and_sixteen_digits(tmp_path):
    """The losses' sum by the weights' with every bit, and a negative fingerprint as its two's complement."""
    writer = TraceWriter(tmp_path, step=0)
    writer.write(first_step=1, statistics=[(0.1, 3.0, 3.0), (math.nan, 0.0, 2.0)], bits=[255, -1])
    writer.close()
    assert (tmp_path / "trace.jsonl").read_text() == (
        f'{{"step": 1, "loss": {0.1 / 3.0!r}, "bits": "00000000000000ff"}}\n'
        '{"step": 2, "loss": null, "bits": "ffffffffffffffff"}\n'
    )


def test_blocks_of_any_length_make_the_same_trace(tmp_path):
    """Three steps at once, or one and two."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = written(tmp_path / "a", [1, 2, 3])
    written(tmp_path / "b", [1])
    assert written(tmp_path / "b", [2, 3], after=1).read_bytes() == one.read_bytes()


@pytest.mark.parametrize("torn", [b"", b'{"step": 5, "lo', b"\0\0\0\0"])
def test_a_resumed_run_writes_each_step_once(tmp_path, torn):
    """Lines after its checkpoint and a torn one are cut off; what it writes again is what a straight run has."""
    (tmp_path / "straight").mkdir()
    straight = written(tmp_path / "straight", [1, 2, 3, 4, 5]).read_bytes()
    path = written(tmp_path, [1, 2, 3, 4])
    path.write_bytes(path.read_bytes() + torn)
    assert [line["step"] for line in trace.read(tmp_path)] == [1, 2, 3, 4]
    assert written(tmp_path, [3, 4, 5], after=2).read_bytes() == straight


def test_a_damaged_or_unreadable_trace_is_named(tmp_path):
    """With its line, and before anything is changed in it; so is a folder in its place."""
    path = written(tmp_path, [1, 2])
    path.write_bytes(b"oops\n" + path.read_bytes())
    with pytest.raises(RunFailedError) as caught:
        TraceWriter(tmp_path, step=2)
    assert str(caught.value) == f"{path} is damaged at line 1 (b'oops'): mend or delete this line"
    path.unlink()
    path.mkdir()
    with pytest.raises(RunFailedError, match=r"cannot read .*/trace.jsonl: Is a directory"):
        trace.read(tmp_path)


def test_a_full_disk_is_one_line_and_leaves_whole_lines(tmp_path):
    """Nothing of a block is there, or all of it."""
    path = written(tmp_path, [1, 2])
    before = path.read_bytes()
    writer = TraceWriter(tmp_path, step=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.write", _full)
        with pytest.raises(RunFailedError) as caught:
            writer.write(first_step=3, statistics=[(1.0, 1.0)], bits=[1])
    writer.close()
    assert path.read_bytes() == before
    assert str(caught.value) == (
        f"cannot write {path} (No space left on device): make room or make it writable, then say the same command "
        "again to go on"
    )


def _full(file, data):
    raise OSError(28, "No space left on device")


def test_a_line_is_strict_json(tmp_path):
    """For any reader."""
    for line in written(tmp_path, [1, 2]).read_text().splitlines():
        assert list(json.loads(line, parse_constant=pytest.fail)) == ["step", "loss", "bits"]
