"""The manifest of a run: what it describes, what a resumed run keeps, how it ends."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import trainbox
from trainbox import manifest, seal
from trainbox.config import RunConfig
from trainbox.devices import select
from trainbox.errors import RunFailedError, UsageError
from trainbox.plan import make


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The fields of a prepared data set, without preparing one."""

    name: str = "digits"
    version: str = "1.0.0"
    path: Path = Path("/data/digits/1.0.0")
    input_shape: tuple[int, int, int] = (8, 8, 1)


def described(command=("trainbox", "train"), **words):
    config = RunConfig(device="cpu", **words)
    return manifest.describe(
        config=config,
        sources={"epochs": "flag --epochs"},
        selection=select(config, gpus=[], environ={}),
        dataset=Digits(),
        plan=make(config, replicas=1, examples=1000),
        command=list(command),
        environ={"TRAINBOX_REVISION": "abc", "TF_CPP_MIN_LOG_LEVEL": "2"},
    )


def test_a_manifest_says_what_ran_on_what_and_from_what(tmp_path):
    """Everything that is needed to say the same run again, in strict JSON."""
    manifest.write(tmp_path, described(seed=7, epochs=3, logical_devices=2))
    kept = manifest.read(tmp_path)
    assert kept["trainbox"] == {"version": trainbox.__version__, "revision": "abc"}
    assert kept["command"] == ["trainbox", "train"]
    assert (kept["seed"], kept["config"]["epochs"], kept["sources"]) == (7, 3, {"epochs": "flag --epochs"})
    assert kept["config"]["data_dir"] == "data"
    assert kept["plan"]["global_batch"] == 64
    assert kept["plan"]["total_steps"] == 48
    assert kept["data"] == {
        "name": "digits",
        "version": "1.0.0",
        "path": "/data/digits/1.0.0",
        "input_shape": [8, 8, 1],
    }
    assert kept["devices"]["kind"] == "cpu"
    assert kept["devices"]["names"] == ["CPU", "CPU"]
    assert kept["environment"] == {"TF_CPP_MIN_LOG_LEVEL": "2"}
    assert kept["packages"]["keras"]
    assert kept["python"] == sys.version.split()[0]
    assert "code" not in kept
    assert "image" not in kept
    (start,) = kept["starts"]
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(start["time"]) < timedelta(minutes=5)
    assert (start["command"], start["host"], start["user"]) == (kept["command"], kept["host"]["name"], kept["user"])


def test_the_users_own_code_is_known_by_its_digest(tmp_path):
    """A changed model file makes another manifest."""
    (tmp_path / "net.py").write_text("def build(input_shape, num_classes): ...\n")
    digests = described(model=f"{tmp_path}/net.py:build")["code"]
    (tmp_path / "net.py").write_text("def build(input_shape, num_classes): return 1\n")
    assert digests.keys() == {"--model"}
    assert described(model=f"{tmp_path}/net.py:build")["files"] == {"--model": f"{tmp_path}/net.py"}
    assert described(model=f"{tmp_path}/net.py:build")["code"] != digests


def test_a_resumed_run_keeps_its_first_start_and_what_it_replaced(tmp_path):
    """The manifest describes the latest start; earlier ones stay in the list, with what was different then."""
    manifest.write(tmp_path, described())
    (first,) = manifest.read(tmp_path)["starts"]
    manifest.finish(tmp_path, {"test/accuracy": 0.9})
    manifest.write(tmp_path, described())
    manifest.write(tmp_path, described(command=("trainbox", "train", "--epochs", "24"), epochs=24))
    kept = manifest.read(tmp_path)
    assert kept["starts"][0] == first
    assert "replaced" not in kept["starts"][1]
    assert kept["starts"][2]["replaced"].keys() == {"config", "plan"}
    assert kept["starts"][2]["replaced"]["config"]["epochs"] == RunConfig().epochs
    assert kept["config"]["epochs"] == 24
    assert kept["command"] == kept["starts"][2]["command"] == ["trainbox", "train", "--epochs", "24"]
    assert "result" not in kept


def test_the_result_comes_last_and_a_new_one_replaces_it(tmp_path):
    """Floats keep every bit, NumPy's too; what is not finite is null."""
    manifest.write(tmp_path, described())
    before = manifest.read(tmp_path)
    manifest.finish(tmp_path, {"weights": "old"})
    result = {"test/loss": 0.1 + 0.2, "test/accuracy": np.float32(0.1), "weights": "f00", "train/loss": float("nan")}
    manifest.finish(tmp_path, result)
    kept = manifest.read(tmp_path)
    assert list(kept)[-1] == "result"
    assert kept.pop("result") == {
        "test/loss": 0.1 + 0.2,
        "test/accuracy": float(np.float32(0.1)),
        "weights": "f00",
        "train/loss": None,
    }
    assert kept.pop("seal").keys() == kept.keys() - set(seal.UNSEALED) | {"result"}
    assert kept == before
    assert "NaN" not in (tmp_path / "manifest.json").read_text()


def test_a_finished_manifest_is_sealed_until_the_run_goes_on(tmp_path):
    """A value changed by hand is named; a new start has no seal before it is done."""
    manifest.write(tmp_path, described())
    manifest.finish(tmp_path, {"weights": "f00", "train/loss": float("inf")})
    kept = manifest.read(tmp_path)
    assert seal.broken(kept) == []
    kept["config"]["learning_rate"] = 0.5
    assert seal.broken(kept) == ["config.learning_rate"]
    manifest.write(tmp_path, described(epochs=31))
    kept = manifest.read(tmp_path)
    assert "seal" not in kept
    assert kept["starts"][1]["replaced"].keys() == {"config", "plan"}


def test_a_folder_without_a_manifest_is_no_run(tmp_path):
    """Reading and finishing say so in one line."""
    for act in (manifest.read, lambda folder: manifest.finish(folder, {})):
        with pytest.raises(UsageError) as caught:
            act(tmp_path)
        assert str(caught.value) == (f"no manifest.json in {tmp_path}: it is not the folder of a run that has started")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"seed": 1', "not JSON: Expecting ',' delimiter: line 1 column 11 (char 10)"),
        (b"[]", "not a JSON object"),
        (b"\xff", "not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ],
)
def test_a_damaged_manifest_is_named_and_kept(tmp_path, damage, reason):
    """No start writes over a record that somebody may still mend."""
    path = tmp_path / "manifest.json"
    path.write_bytes(damage)
    for act in (manifest.read, lambda folder: manifest.write(folder, described())):
        with pytest.raises(RunFailedError) as caught:
            act(tmp_path)
        assert str(caught.value) == f"{path} is damaged ({reason}): delete it to go on without its record"
    assert path.read_bytes() == damage


def test_a_manifest_that_cannot_be_read_is_told(tmp_path):
    """A folder in its place is not a manifest."""
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(RunFailedError) as caught:
        manifest.read(tmp_path)
    assert str(caught.value) == f"cannot read {tmp_path}/manifest.json: Is a directory"


def test_the_file_is_json_for_people_too(tmp_path):
    """Indented, with a line end at its end, and nothing but it in the folder."""
    manifest.write(tmp_path, described())
    text = (tmp_path / "manifest.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
