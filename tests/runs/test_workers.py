"""Runs of several worker processes: the same bits, signals, lost workers, and what the same command does then."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import time

import pytest

LONG = ("--reproducible", "--model", "mlp", "--batch-size", "256", "--epochs", "60", "--validation-split", "0.1")
LOST = "the last checkpoint is kept, and the same command goes on from it, also with another number of workers"


def ports(count):
    """Ports that nobody has."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def crew(place, name, *words, size=2, missing=(), **more):
    """The started workers of a run, the chief first, and their addresses."""
    addresses = [f"127.0.0.1:{port}" for port in ports(size)]
    every = ("--workers", ",".join(addresses), "--worker-timeout-seconds", "4", *words)
    started = [
        place.start("train", "--run", name, "--worker-index", str(index), *every, fresh=True, **more)
        for index in range(size)
        if index not in missing
    ]
    return started, addresses


@pytest.fixture(scope="module")
def straight(place):
    """One worker with one device, undisturbed."""
    command = place.trainbox("train", "--run", "straight", *LONG)
    assert (command.ended, command.err) == (0, "")
    return place.run("straight")


def test_stopped_on_two_workers_and_ended_on_one(place, straight):
    """A signal for one stops all, each with its code; the run goes on alone to the bits of the straight one."""
    run = place.run("stopped")
    (chief, worker), _ = crew(place, "stopped", *LONG)
    chief.until(lambda: bool(run.steps))
    worker.send(signal.SIGUSR1)
    worker.send(signal.SIGUSR1)
    assert [command.wait() for command in (chief, worker)] == [138, 138]
    assert chief.complaint == worker.complaint
    assert chief.complaint.startswith(f"stopped by SIGUSR1; saved at step {run.steps[0]} ")
    last = place.trainbox("train", "--run", "stopped", *LONG)
    assert (last.ended, last.err) == (0, "")
    assert run.same == straight.same
    trace = [(one.path / "trace.jsonl").read_bytes() for one in (run, straight)]
    assert trace[0] == trace[1]


def test_begun_alone_and_ended_by_two_with_two_devices_each(place, straight):
    """The other way round; the worker says whose run it is, and writes nothing anywhere."""
    run = place.run("grown")
    alone = place.start("train", "--run", "grown", *LONG).until(lambda: bool(run.steps))
    alone.send(signal.SIGTERM)
    assert alone.wait() == 143
    (chief, worker), addresses = crew(place, "grown", *LONG, "--logical-devices", "2")
    assert [(command.wait(), command.err) for command in (chief, worker)] == [(0, "")] * 2
    assert worker.out == (
        f"workers: 2, this is number 1 ({addresses[1]}), the chief is {addresses[0]}, from --workers\n"
        "run: grown, of which the chief tells\n"
    )
    assert run.same == straight.same
    again, _ = crew(place, "grown", *LONG)
    assert [(command.wait(), command.out.splitlines()[-1]) for command in again] == [
        (0, "already complete (60/60)")
    ] * 2
    compared = place.trainbox("compare", "straight", "grown")
    assert "same bits" in compared.out, compared.out


@pytest.mark.parametrize(("signum", "victim"), [(signal.SIGKILL, 1), (signal.SIGKILL, 0), (signal.SIGSTOP, 1)])
def test_a_lost_worker_ends_the_others_and_costs_no_bits(place, straight, signum, victim):
    """Killed or frozen, worker or chief: the other names it within its time, and the same command goes on."""
    name = f"lost-{signum.name}-{victim}"
    run = place.run(name)
    started, addresses = crew(place, name, *LONG)
    started[0].until(lambda: bool(run.steps))
    began = time.monotonic()
    started[victim].send(signum)
    survivor = started[1 - victim]
    assert survivor.wait(patience=30) == 1
    assert time.monotonic() - began < 20
    why = "has been silent for 4 s" if signum == signal.SIGSTOP else "ended without a word"
    assert survivor.complaint == f"worker {addresses[victim]} {why}; {LOST}"
    started[victim].process.kill()
    started[victim].wait()
    assert [command.wait() for command in crew(place, name, *LONG)[0]] == [0, 0]
    assert run.same == straight.same


def test_a_worker_that_never_arrives_is_named(place):
    """By those that came, in the time that is given; nothing has begun."""
    (chief,), addresses = crew(place, "waiting", "--worker-start-seconds", "2", missing=(1,))
    assert chief.wait() == 1
    assert chief.complaint.startswith(f"the worker has not arrived within 2 s: {addresses[1]}; start all of them")
    assert place.run("waiting").steps == []


def test_workers_with_other_devices_are_refused(place):
    """Every replica needs as many shards, so each worker needs as many devices."""
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports(2))
    words = ("train", "--run", "uneven", "--workers", addresses)
    chief = place.start(*words, "--worker-index", "0", fresh=True)
    worker = place.start(*words, "--worker-index", "1", "--logical-devices", "2", fresh=True)
    assert (chief.wait(), worker.wait()) == (3, 3)
    assert re.search(
        r"has devices \['cpu', 2\], and the chief \['cpu', 1\]: all workers need the same", worker.complaint
    )


def test_workers_with_other_files_are_refused(place, tmp_path):
    """A worker whose data set was made from other bytes would train on other rows, and nobody would see it."""
    (chief, worker), addresses = crew(place, "other-data", "--epochs", "1", missing=(), TRAINBOX_DATA_DIR=str(tmp_path))
    assert [command.wait() for command in (chief, worker)] == [0, 0]  # one prepares, the other waits for it
    folder = tmp_path / "digits" / "1.0.0"
    (folder / "checksums.sha256").unlink()
    words = ("--epochs", "2", "--workers", ",".join(addresses))
    chief = place.start("train", "--run", "mixed", "--worker-index", "0", *words, fresh=True)
    record = folder / "digits-test.tfrecord-00000-of-00001"
    other = tmp_path / "other" / "digits"
    shutil.copytree(tmp_path / "digits", other)
    damaged = other / "1.0.0" / record.name
    damaged.write_bytes(damaged.read_bytes() + b"\0")
    worker = place.start(
        "train", "--run", "mixed", "--worker-index", "1", *words, fresh=True, TRAINBOX_DATA_DIR=str(other.parent)
    )
    assert (chief.wait(), worker.wait()) == (4, 4)
    assert f"worker {addresses[1]} has other files of data set digits than the chief" in worker.complaint


@pytest.mark.parametrize(
    ("words", "environ", "code", "message"),
    [
        (("--workers", "a:1,b:2", "--worker-index", "0", "--engine", "fit"), {}, 2, "cannot be used by --engine fit"),
        ((), {"TF_CONFIG": "{"}, 2, "TF_CONFIG is not JSON"),
        (("--worker-index", "1"), {}, 2, "--worker-index needs --workers"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_at_once(place, words, environ, code, message):
    command = place.trainbox("train", "--run", "never", *words, **environ)
    assert command.wait() == code
    assert message in command.complaint
