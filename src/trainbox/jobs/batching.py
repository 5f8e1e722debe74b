"""`--batch-size auto`: the largest batch that fits on the devices of a run, found by trying, and kept as a number."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainbox import batch_search, limits, manifest, settings
from trainbox import plan as plans
from trainbox.config import AUTO, RunConfig
from trainbox.display import Display
from trainbox.errors import DataError, DevicesError, RunFailedError, TrainboxError, UsageError
from trainbox.jobs import batch_trial, resume
from trainbox.settings import Settings

if TYPE_CHECKING:
    from trainbox.data.prepare import DatasetInfo
    from trainbox.devices import Selection

# The least part of the batch that is not split: eight rows a replica.
_ROWS = 8
# How a process ends that could not get memory: the kernel's killer, and C++ where it cannot throw.
_KILLED = (-signal.SIGKILL, -signal.SIGABRT)


def recalled(run_dir: Path, words: Settings) -> Settings:
    """The words with the batch that was found for the run in `run_dir`, if it has anything to go on from.

    Raises:
        RunFailedError: its manifest is damaged.
    """
    if words.config.batch_size != AUTO or not (run_dir / manifest.FILE).exists():
        return words
    record = manifest.read(run_dir)
    begun = any((run_dir / resume.CHECKPOINTS).glob("*")) or record.get("result")
    return _settled(words, record["plan"]["global_batch"]) if begun and record.get("plan") else words


def refuse(config: RunConfig) -> None:
    """Raise UsageError where several workers would have to find a batch together."""
    if config.batch_size == AUTO:
        raise UsageError(
            "--batch-size auto is tried on one worker alone; find it there, and give all workers the number"
        )


def found(words: Settings, *, selection: Selection, info: DatasetInfo, display: Display) -> Settings:
    """The words with the largest batch that fits instead of `auto`; other words as they are.

    It is tried on the selected devices, which this process must not have touched yet.

    Raises:
        RunFailedError: not even one row a replica fits, or a trial failed for another reason.
        TrainboxError: the run cannot be, whatever its batch.
    """
    config = words.config
    if config.batch_size != AUTO:
        return words
    rows, shards = _rows(info, config), config.shards or selection.replicas
    budget = batch_search.available_bytes(*_limits())
    trial = _Trial(words=words, selection=selection, budget=budget, display=display)
    fitting = batch_search.largest(trial.fits, start=min(plans.ROWS_A_SHARD * shards, rows), limit=rows)
    if fitting is None:
        raise RunFailedError(
            "--batch-size auto: not even a batch of one row fits into the memory of these devices; use a smaller "
            "model, or --precision bfloat16"
        )
    batch = batch_search.with_margin(fitting, unit=_ROWS * selection.replicas, limit=rows)
    display.line(f"--batch-size auto: {batch}, where {fitting} fits{' (all training rows)' if batch == rows else ''}")
    return _settled(words, batch)


def _settled(words: Settings, batch: int) -> Settings:
    source = f"{words.sources['batch_size']} {AUTO}"
    return dataclasses.replace(
        words,
        config=dataclasses.replace(words.config, batch_size=batch),
        sources=words.sources | {"batch_size": source},
    )


def _rows(info: DatasetInfo, config: RunConfig) -> int:
    """The training rows, as `hold_out` leaves them."""
    from trainbox.data import splits

    rows, share = splits.count(info, config.train_split), config.validation_split
    return max(rows - min(max(round(rows * share), 1), rows - 1), 1) if share else max(rows, 1)


def _limits() -> tuple[int | None, int | None]:
    read = limits.read(os.environ)
    return read.memory_bytes, read.slurm_memory_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Trial:
    """Tries batches on the devices of a run, each in a new process."""

    words: Settings
    selection: Selection
    budget: int | None
    display: Display

    def fits(self, batch: int) -> bool:
        """Whether two steps with this batch fit. Raises what else is wrong."""
        answer = self._ask(batch)
        if "error" in answer:
            raise _error(answer["error"], answer["code"])
        self.display.line(f"trying a batch of {batch}: {'fits' if answer['fits'] else 'does not fit'}")
        return bool(answer["fits"])

    def _ask(self, batch: int) -> dict[str, Any]:
        # The environment has the selected devices and no others, so they are no longer to be chosen.
        device = "cpu" if self.selection.kind == "cpu" else "gpu"
        config = dataclasses.replace(self.words.config, batch_size=batch, gpus=None, devices=None, device=device)
        values = json.loads(settings.dump(dataclasses.replace(self.words, config=config)))["values"]
        request = json.dumps({"values": values, "budget": self.budget})
        # -P: a file of the user's in the working folder is not to be imported in place of a library.
        command = [sys.executable, "-P", "-m", "trainbox.jobs.batch_trial", request]
        log: deque[str] = deque(maxlen=50)
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith(batch_trial.SEPARATOR):
                        answer: dict[str, Any] = json.loads(line[1:])
                        return answer
                    log.extend([line.strip()] if line.strip() else [])
            finally:
                process.kill()
        if process.returncode in _KILLED:
            return {"fits": False}
        last = log[-1] if log else "it said nothing"
        raise RunFailedError(
            f"--batch-size auto: the trial of a batch of {batch} ended with status {process.returncode} ({last}); give "
            "--batch-size a number"
        ) from RuntimeError("\n".join(log))


def _error(message: str, code: int) -> TrainboxError:
    """The error of a trial, which ended with `code`, as one of this process."""
    kinds = (UsageError, DevicesError, DataError)
    return next((kind for kind in kinds if kind.exit_code == code), RunFailedError)(message)
