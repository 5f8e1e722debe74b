"""Tries whether a batch fits, and ends: `python -m trainbox.jobs.batch_trial JSON`.

A process of its own, because one that ran out of memory is not to be trusted with another try, and may be killed. JSON
has the `values` of a config and the `budget` of the process's memory in bytes, or null. It answers on standard output,
one JSON object behind a record separator (RFC 7464): whether it `fits`, or the `error` with its `code`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from trainbox import batch_search, settings
from trainbox.config import RunConfig
from trainbox.display import open_display
from trainbox.errors import TrainboxError

SEPARATOR = "\x1e"
STEPS = 2
_LOOK_SECONDS = 0.02


def main(request: str) -> int:
    """Try, and answer."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    asked = json.loads(request)
    budget = asked["budget"]
    if budget is not None:
        threading.Thread(target=_keep_within, args=(budget,), daemon=True).start()
    config = settings.recorded(asked["values"], {}, path=Path("the trial of a batch")).config
    try:
        answer(fits=fits(config) and _within(budget))
    except TrainboxError as error:
        answer(error=str(error), code=error.exit_code)
    return 0


def answer(**message: Any) -> None:
    """Send one message, whole: what libraries print may come before or after it."""
    os.write(1, f"\n{SEPARATOR}{json.dumps(message)}\n".encode())


def fits(config: RunConfig) -> bool:
    """Whether two steps with the batch of `config` fit into the memory of its devices.

    Raises:
        TrainboxError: something else is wrong with the run.
    """
    from trainbox.jobs import setting_up

    silent = open_display("plain", stream=None, environ={})
    selection = setting_up.devices(config, silent)
    info = setting_up.dataset(config, silent)
    strategy = setting_up.strategy(config, selection)

    from trainbox import plan as plans
    from trainbox.jobs import failing

    info = setting_up.used(config, info)
    rows, _ = setting_up.training_splits(config, info)
    plan = plans.make(config, replicas=selection.replicas, examples=len(rows))
    try:
        with failing.told(config, plan):
            _take_steps(config, setting_up.learner(config, strategy, info, plan, rows=rows), rows)
    except Exception as error:
        if failing.out_of_memory(error):
            return False
        raise
    return True


def _take_steps(config: RunConfig, learner: Any, rows: Any) -> None:
    """The first steps of a run, one at a time."""
    from trainbox import blocks, randomness, scaling
    from trainbox.data.pipeline import epoch_order
    from trainbox.jobs import looping, setting_up
    from trainbox.learner import Batch

    plan = learner.plan
    feed = setting_up.feed(rows, plan)
    block = blocks.train_block(looping.training_step(config, learner, feed))
    order, state = epoch_order(plan, seed=config.seed, epoch=0), scaling.initial_state(config.precision)
    for step in range(STEPS):
        feed.begin(order, first_step=step % plan.steps_per_epoch)
        source, indices, weights = feed.take(1)
        seeds = randomness.shard_seeds(
            seed=config.seed, first_step=step, steps=1, shards=plan.shards,
            variables=learner.seeds[0], practice=learner.seeds[1],
        )  # fmt: skip
        statistics, _, state, *_ = block(Batch(indices, weights, seeds, source), state)
        statistics.numpy()


def _within(budget: int | None) -> bool:
    if not batch_search.leaves_address_space():
        return False
    return budget is None or (batch_search.resident_bytes(peak=True) or 0) <= budget


def _keep_within(budget: int) -> None:
    """End before the kernel has to: it would choose whom to kill."""
    while (batch_search.resident_bytes() or 0) <= budget:
        time.sleep(_LOOK_SECONDS)
    answer(fits=False)
    os._exit(0)


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the parent closes its end, or dies
    os._exit(1)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    os._exit(status)  # TensorFlow takes its time to clear up
