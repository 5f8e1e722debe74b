"""Whole commands in processes of their own: how they end, and what they leave behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("child.py")
PROGRAM = [sys.executable, "-m", "trainbox"]
# Importing these takes most of the time of a short run. Most commands are therefore forked from a process that has
# imported them and started nothing; where the start matters, a command is a program of its own (`fresh=True`).
PRELOADED = ["keras", "tensorboard.plugins.scalar.summary_v2", "tensorflow", "tensorflow_datasets"]
FOREIGN = ("TRAINBOX_", "TFDS_", "SLURM_", "KERAS_", "TF_", "CUDA_")
PATIENCE = 180.0


@dataclass(kw_only=True)
class Command:
    """One `trainbox` command that was started, and may still be running."""

    process: Any
    log: Path

    @property
    def out(self) -> str:
        """What it said on standard output so far."""
        return self.log.with_suffix(".out").read_text()

    @property
    def err(self) -> str:
        """What it said on standard error so far."""
        return self.log.with_suffix(".err").read_text()

    def send(self, signum: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, signum)

    def until(self, sign: Callable[[], bool], *, patience: float = PATIENCE) -> Command:
        """Wait until there is a sign, while it runs."""
        end = time.monotonic() + patience
        while not sign():
            assert self.ended is None, f"ended with {self.ended} before the sign: {self.err}"
            assert time.monotonic() < end, f"no sign for {patience} s: {self.out}"
            time.sleep(0.002)
        return self

    @property
    def ended(self) -> int | None:
        """How it ended: its exit code, or the negative number of the signal that killed it; None while it runs."""
        return self.process.poll() if isinstance(self.process, subprocess.Popen) else self.process.exitcode

    def wait(self, *, patience: float = PATIENCE) -> int:
        """Wait for its end; the exit code."""
        if isinstance(self.process, subprocess.Popen):
            return self.process.wait(patience)
        self.process.join(patience)
        assert self.process.exitcode is not None, f"still running after {patience} s: {self.out}"
        return self.process.exitcode

    @property
    def complaint(self) -> str:
        """The one line on standard error, after it has ended; a failure tells what was said instead."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("trainbox: "), self.err
        return lines[0].removeprefix("trainbox: ")


@dataclass(frozen=True, kw_only=True)
class Run:
    """The folder of a run."""

    path: Path

    @property
    def result(self) -> dict[str, Any]:
        """How the run ended, from its manifest."""
        return json.loads((self.path / "manifest.json").read_text())["result"]

    @property
    def same(self) -> tuple[str, str]:
        """The digests that two equal runs share: of the weights and of the metrics."""
        return self.result["weights"], self.result["metrics"]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The lines of its metrics."""
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines()]

    @property
    def steps(self) -> list[int]:
        """The steps of its checkpoints, the newest first."""
        return sorted((int(path.stem.removeprefix("step-")) for path in self.checkpoints), reverse=True)

    @property
    def checkpoints(self) -> list[Path]:
        """Its checkpoint files, the newest first."""
        return sorted((self.path / "checkpoints").glob("step-*.safetensors"), reverse=True)


@dataclass(kw_only=True)
class Place:
    """A working folder in which commands are started; `output/` holds its runs. The digits lie prepared elsewhere."""

    folder: Path
    data_dir: Path
    started: list[Command] = field(default_factory=list)

    def start(self, *words: str, fresh: bool = False, prefix: tuple[str, ...] = (), **environ: str) -> Command:
        """Start `trainbox` with `words`; if `fresh` as a new program, which the words of `prefix` may start."""
        log = self.folder / f"command-{len(self.started)}"
        outlets = [log.with_suffix(".out"), log.with_suffix(".err")]
        for path in outlets:
            path.touch()
        clean = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        # Of one revision, even if the tests' own checkout gets a commit meanwhile.
        own = {"DATA_DIR": str(self.data_dir), "DEVICE": "cpu", "REVISION": "tested"}
        environ = {**clean, **{f"TRAINBOX_{name}": value for name, value in own.items()}, **environ}
        # What TensorFlow says of half precision on an older CPU is settled when it is loaded.
        half = any("float16" in word for word in words)
        begin = self._program if fresh or half else self._fork
        self.started.append(Command(process=begin([*prefix, *PROGRAM, *words], environ, outlets), log=log))
        return self.started[-1]

    def _program(self, command: list[str], environ: dict[str, str], outlets: list[Path]) -> Any:
        out, err = (path.open("w") for path in outlets)
        with out, err:
            return subprocess.Popen(command, cwd=self.folder, env=environ, stdout=out, stderr=err)

    def _fork(self, command: list[str], environ: dict[str, str], outlets: list[Path]) -> Any:
        words = command[len(PROGRAM) :]
        request = {"words": words, "cwd": self.folder, "environ": environ, "outlets": outlets}
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOADED)
        process = context.Process(target=runpy.run_path, args=(str(CHILD), {"request": request}, "__main__"))
        with pytest.MonkeyPatch.context() as patch:
            # Read by what is preloaded, when the first process makes the one that all are forked from.
            for name, value in {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_HOME": "/dev/null/keras"}.items():
                patch.setenv(name, value)
            process.start()
        return process

    def trainbox(self, *words: str, **more: Any) -> Command:
        """`start` and wait for the end."""
        command = self.start(*words, **more)
        command.wait()
        return command

    def run(self, name: str) -> Run:
        """The run of this name."""
        return Run(path=self.folder / "output" / name)

    def stop(self) -> None:
        """End what still runs."""
        for command in self.started:
            if command.ended is None:
                command.process.kill()
                command.wait()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, digits_dir: Path) -> Iterator[Place]:
    """A working folder for the tests of a file."""
    made = Place(folder=tmp_path_factory.mktemp("place"), data_dir=digits_dir)
    yield made
    made.stop()
