"""A checkpoint is whole and right, or it is named and passed over."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainbox import checkpoint
from trainbox.checkpoint import DamagedError
from trainbox.errors import RunFailedError, UsageError
from trainbox.run_folder import atomic_write

ARRAYS = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(7, np.int64), np.array([1, 2], np.uint32)]
STATE = {"progress": {"step": 10, "best": 0.1}}


@pytest.fixture
def folder(tmp_path):
    """A folder with the checkpoints of steps 10 and 20."""
    for step in (10, 20):
        checkpoint.save(tmp_path, step=step, arrays=ARRAYS, state=STATE, write=atomic_write)
    return tmp_path


def newest(folder):
    return checkpoint.paths(folder)[0]


def test_what_was_saved_comes_back(folder):
    """Arrays with type, shape and bits, scalars included, and the state."""
    found = checkpoint.latest(folder, tell=pytest.fail)
    assert found.step == 20
    assert found.state == STATE
    assert [(a.dtype, a.shape, a.tobytes()) for a in found.arrays] == [(a.dtype, a.shape, a.tobytes()) for a in ARRAYS]


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_a_cut_file_is_named_and_the_one_before_used(folder, keep):
    """D2: empty, nearly empty, cut in the middle or by one byte."""
    path = newest(folder)
    path.write_bytes(path.read_bytes()[:keep])
    told = []
    assert checkpoint.latest(folder, tell=told.append).step == 10
    assert len(told) == 1
    assert told[0].startswith(f"checkpoint {path} is damaged (")
    assert told[0].endswith("; trying the one before it")


def test_no_flipped_bit_goes_unseen(folder):
    """Every byte of the file, changed, is found: header, state and arrays."""
    path = newest(folder)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        try:
            found = checkpoint.read(path)
        except DamagedError:
            continue
        # Bytes that mean nothing to the format may differ; what is read must be what was saved.
        assert found.state == STATE
        assert [a.tobytes() for a in found.arrays] == [a.tobytes() for a in ARRAYS], position


def test_training_never_starts_from_zero_silently(folder):
    """With all checkpoints damaged the run fails, naming the folder; with none at all it is new."""
    for path in checkpoint.paths(folder):
        path.write_bytes(b"")
    with pytest.raises(RunFailedError) as failure:
        checkpoint.latest(folder, tell=lambda text: None)
    assert str(failure.value) == (
        f"all 2 checkpoints in {folder} are damaged; delete them to start the run again from step 0"
    )
    assert checkpoint.latest(folder / "none", tell=pytest.fail) is None


def test_a_checkpoint_of_another_version_is_not_damaged(folder, monkeypatch):
    """It is told with exit code 2 and not passed over, so that no version deletes what another one can use."""
    monkeypatch.setattr(checkpoint, "FORMAT", "trainbox-9")
    with pytest.raises(UsageError) as refusal:
        checkpoint.latest(folder, tell=pytest.fail)
    assert str(refusal.value) == (
        f"checkpoint {newest(folder)} has format 'trainbox-2', not 'trainbox-9'; use the version that wrote it"
    )


def test_a_checkpoint_that_may_not_be_read_is_not_damaged(folder, monkeypatch):
    """The run ends with the reason instead of going on from an older one and deleting this one."""

    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(folder), "open", refuse)
    with pytest.raises(RunFailedError) as failure:
        checkpoint.latest(folder, tell=pytest.fail)
    assert not isinstance(failure.value, DamagedError)
    assert str(failure.value) == (
        f"cannot read checkpoint {newest(folder)} (Permission denied): make it readable, then say the command again"
    )


def test_strange_files_are_left_alone(folder):
    """Temporary and foreign names are no checkpoints."""
    (folder / ".step-0000000030.safetensors.12.trainbox-tmp").write_bytes(b"")
    (folder / "step-x.safetensors").write_bytes(b"")
    assert [checkpoint.step_of(path) for path in checkpoint.paths(folder)] == [20, 10]


def test_two_halves_of_a_renaming_are_one_checkpoint(folder):
    """Where a file system shows both names after a crash, the whole file counts and the temporary one does not."""
    half = folder / ".step-0000000020.safetensors.12.trainbox-tmp"
    half.write_bytes(newest(folder).read_bytes()[:100])
    assert checkpoint.latest(folder, tell=pytest.fail).path == newest(folder)
    newest(folder).unlink()
    assert checkpoint.latest(folder, tell=pytest.fail).step == 10


def test_a_snapshot_is_not_changed_by_later_steps():
    """A copy, not a view of the memory that an assignment writes to."""
    variables = [keras.Variable(np.zeros((64, 64), np.float32)), keras.Variable(np.float32(0))]
    taken = checkpoint.snapshot(variables)
    for variable in variables:
        variable.value.assign_add(np.ones(variable.shape, np.float32))
    assert not any(array.any() for array in taken)
    assert all(array.flags.owndata for array in taken)


def test_the_best_one_is_kept(folder):
    """The newest K stay, and the best besides."""
    for step in (30, 40, 50):
        checkpoint.save(folder, step=step, arrays=ARRAYS, state=STATE, write=atomic_write)
    checkpoint.prune(folder, keep=2, best_step=20)
    assert [checkpoint.step_of(path) for path in checkpoint.paths(folder)] == [50, 40, 20]


def test_another_model_is_refused(folder):
    """A number or a shape of variables that is not the saved one is refused, and nothing is assigned."""
    found = checkpoint.latest(folder, tell=pytest.fail)
    one = keras.Variable(np.zeros((2, 3), np.float32), name="kernel")
    with pytest.raises(UsageError) as refusal:
        checkpoint.restore(found, [one])
    assert str(refusal.value) == (
        f"{found.path} holds 3 variables and the model with its optimizer has 1; resume with the model and options "
        "that the run began with, or name another --run"
    )
    wrong = keras.Variable(np.zeros(5, np.float32), name="bias")
    with pytest.raises(UsageError) as refusal:
        checkpoint.restore(found, [one, wrong, one])
    assert str(refusal.value) == (
        f"variable bias has shape (5,) and () in {found.path}; resume with the model that the run began with, or name "
        "another --run"
    )
    assert not one.numpy().any()
