"""What a worker says of a step that failed: its own reason, or who of the others is lost."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainbox import contact
from trainbox.cluster import Cluster
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DataError, RunFailedError
from trainbox.jobs import crew as crews
from trainbox.jobs.crew import Crew

CPU = Selection(kind="cpu", replicas=1, visible_devices="", names=("CPU",), notice="")


class UnavailableError(Exception):
    """Named as TensorFlow's, which is known by its name where TensorFlow is not loaded."""


@pytest.fixture
def chief(monkeypatch):
    """A chief and its open connection to worker 1, which says nothing by itself."""
    monkeypatch.setattr(crews, "_GRACE_SECONDS", 3600)
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    addresses = tuple(f"127.0.0.1:{one.getsockname()[1]}" for one in held)
    for one in held:
        one.close()
    crew = Crew(cluster=Cluster(workers=addresses, index=0, source="--workers"))
    config = RunConfig(worker_timeout_seconds=2)
    with ThreadPoolExecutor() as pool:
        here = pool.submit(crew.meet, config, CPU, told={})
        _, (line,) = pool.submit(contact.meet, addresses, 1, told=crews._common(CPU), seconds=10).result()
        here.result()
    yield crew, line
    crew.end(None)


def failed(cause):
    """A run that failed for `cause`, as the rooms raise it."""
    error = RunFailedError("training failed in TensorFlow")
    error.__cause__ = cause
    return error


def test_a_step_that_fails_before_the_loss_is_seen_waits_for_the_name(chief):
    """TensorFlow's connection may drop first, and it knows no names."""
    crew, line = chief
    threading.Timer(0.5, line.stream.close).start()
    assert crew.blames(failed(UnavailableError()))
    assert crew.message.startswith(f"worker {crew.cluster.workers[1]} ended without a word; the last checkpoint is")


def test_a_step_that_fails_while_all_live_keeps_its_reason(chief):
    """Another worker that says that it lives is not blamed, and what is no such failure does not wait."""
    crew, line = chief
    for beat in range(4):
        threading.Timer(beat, line.send, kwargs={"beat": 1}).start()
    assert not crew.blames(failed(UnavailableError()))
    assert not crew.blames(failed(ValueError()))


def test_a_reason_of_its_own_is_kept(chief):
    crew, line = chief
    line.stream.close()
    assert crew._seen.wait(5)
    assert crew.blames(failed(ValueError()))
    assert not crew.blames(DataError("no data"))
