"""What a run leaves while it trains: the chief's files, and nothing of the workers that follow it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainbox import metrics, trace
from trainbox.config import RunConfig
from trainbox.jobs.saving import Follower, Saver
from trainbox.learner import Learner
from trainbox.loop import Trace, Writer
from trainbox.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Written:
    """Where lines of metrics go, and those of the trace where there is one."""

    metrics: Writer
    trace: Trace | None


class _Nowhere:
    """Takes what another worker writes."""

    def write(self, **line: Any) -> None:
        """It is written by the chief."""


def saver(run_dir: Path | None, config: RunConfig, learner: Learner) -> Saver:
    """What saves the run in `run_dir`, or follows another worker that does."""
    return Saver(run_dir, config, learner) if run_dir else Follower(config, learner)


@contextlib.contextmanager
def opened(run_dir: Path | None, config: RunConfig, progress: Progress) -> Iterator[Written]:
    """The files of the run from `progress` on. Only reproducible runs are traced; others do not pay for it."""
    if run_dir is None:
        yield Written(metrics=_Nowhere(), trace=_Nowhere() if config.reproducible else None)
        return
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            contextlib.closing(
                metrics.MetricWriter(
                    run_dir, step=progress.step, epochs_done=progress.epochs_done, tensorboard=config.tensorboard
                )
            )
        )
        traced = None
        if config.reproducible:
            traced = stack.enter_context(contextlib.closing(trace.TraceWriter(run_dir, step=progress.step)))
        yield Written(metrics=writer, trace=traced)
