"""What is seen of a run while it trains: its GPUs, the end of its first step, and at the end what bounds it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from trainbox import first_step, monitor
from trainbox.bottleneck import Timings, Verdict, judge
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.display import Display
from trainbox.first_step import FirstStepWatch
from trainbox.monitor import Monitor
from trainbox.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The sampler and the watch of one run."""

    monitor: Monitor
    first_step: FirstStepWatch

    def verdict(self, timings: Timings, plan: Plan) -> Verdict:
        """What bounds the run that has just ended."""
        return judge(timings, plan, self.monitor.whole())


@contextlib.contextmanager
def begin(config: RunConfig, selection: Selection, display: Display) -> Iterator[Watched]:
    """Watch a run on the devices of `selection` until the end of the context; on the CPU nothing is sampled."""
    over = False

    def tell(text: str) -> None:
        # The log is closed soon after the run, and a driver may be slow.
        if not over:
            display.line(f"note: {text}")

    identifiers = (selection.visible_devices or "").split(",") if selection.kind == "gpu" else []
    made = Watched(
        monitor=Monitor(monitor.probes(identifiers, tell=tell) if identifiers else []),
        first_step=FirstStepWatch(
            seconds=config.first_step_seconds,
            tell=tell,
            advice=first_step.advice(
                kind=selection.kind,
                replicas=selection.replicas,
                all_reduce="one-device (--reproducible)" if config.reproducible else config.all_reduce,
                environ=os.environ,
                shm=first_step.shm_bytes(),
            ),
        ),
    )
    made.monitor.start()
    try:
        yield made
    finally:
        over = True
        made.first_step.done()
        made.monitor.stop()
