"""This process among the workers of a run: alone, the chief that writes the run folder, or one that follows it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import trainbox
from trainbox import cluster as clusters
from trainbox import contact, provenance
from trainbox.cluster import Cluster
from trainbox.config import RunConfig
from trainbox.devices import Selection
from trainbox.errors import DataError, DevicesError, RunFailedError, TrainboxError, UsageError
from trainbox.stopping import StopRequest

if TYPE_CHECKING:
    import tensorflow as tf

    from trainbox.agreement import Agreement
    from trainbox.data.prepare import DatasetInfo

# The time that a worker gets to end by itself when another one is lost: to finish the checkpoint that it is writing.
_GRACE_SECONDS = 10.0
# What TensorFlow raises where another worker does not answer, sometimes before that worker's end is seen by `Contact`.
_UNANSWERED = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "InternalError")


@dataclass
class Crew:
    """The workers of a run; without a `cluster` this process is all of them. `lost` tells of the first that is not
    there any more.
    """

    cluster: Cluster | None = None
    agreement: Agreement | None = None
    lost: str | None = None
    _contact: contact.Contact | None = field(default=None, repr=False)
    _seen: threading.Event = field(default_factory=threading.Event, repr=False)
    _patience: float = 0.0

    @property
    def size(self) -> int:
        """How many workers there are."""
        return self.cluster.size if self.cluster else 1

    @property
    def leads(self) -> bool:
        """Whether this one writes the run folder."""
        return self.cluster is None or self.cluster.index == 0

    def meet(self, config: RunConfig, selection: Selection, *, told: Mapping[str, Any]) -> dict[str, Any]:
        """Wait until all workers are there; what the chief told. A worker alone has nobody to wait for.

        Raises:
            RunFailedError: one does not arrive, or the own port is in use.
            UsageError, DevicesError: they do not have the same list, code, options or number of devices.
        """
        if self.cluster is None:
            return dict(told)
        mine = {**told, **_common(selection)}
        everything, lines = contact.meet(
            self.cluster.workers, self.cluster.index, told=mine, seconds=config.worker_start_seconds
        )
        chief: dict[str, Any] = everything[0]
        if "finished" in chief:
            return chief
        self._contact = contact.Contact(
            self.cluster.workers, lines, seconds=config.worker_timeout_seconds, on_lost=self._on_lost
        )
        self._patience = config.worker_timeout_seconds + 2 * contact.BEAT_SECONDS
        _compare(self.cluster, everything)
        return chief

    def dismiss(self, config: RunConfig, finished: str) -> None:
        """Tell the other workers, once they have come, that there is nothing to do."""
        if self.cluster is not None:
            _, lines = contact.meet(
                self.cluster.workers, 0, told={"finished": finished}, seconds=config.worker_start_seconds
            )
            for line in lines:
                line.stream.close()

    def agree(self, strategy: tf.distribute.Strategy) -> Agreement:
        """How the workers agree, from the time when they have the strategy."""
        if self.agreement is None:
            from trainbox.agreement import Alone, AmongWorkers

            cluster = self.cluster
            self.agreement = AmongWorkers(strategy, index=cluster.index, size=cluster.size) if cluster else Alone()
        return self.agreement

    def check_data(self, info: DatasetInfo) -> None:
        """Whether all workers read the same files; raises DataError naming one that does not."""
        if self.cluster is None or self.agreement is None:
            return
        import hashlib

        digest = hashlib.sha256(f"{info.full_name}{sorted(info.checksums.items())}".encode()).digest()
        digests = self.agreement.gather(int.from_bytes(digest[:7], "big"))
        for address, other in zip(self.cluster.workers, digests, strict=True):
            if other != digests[0]:
                raise DataError(
                    f"worker {address} has other files of data set {info.name} than the chief: prepare it once and "
                    "give all workers the same --data-dir, or copies of it"
                )

    def check_stop(self, stop: StopRequest) -> Callable[[], None]:
        """A check that raises InterruptedRunError on all workers when one of them was asked to stop."""
        agreement = self.agreement
        if self.cluster is None or agreement is None:
            return stop.check

        def check() -> None:
            if signum := max(agreement.gather(stop.signum or 0)):
                stop.follow(signum)
            stop.check()

        return check

    def _on_lost(self, why: str) -> None:
        """Let the step that waits for the lost worker fail, or else end here."""
        self.lost = why
        self._seen.set()
        last = threading.Timer(_GRACE_SECONDS, self._end)
        last.daemon = True
        last.start()
        if self.agreement is not None:
            self.agreement.abort(why)

    def _end(self) -> None:
        line = f"trainbox: {self.message}\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
        os._exit(RunFailedError.exit_code)

    @property
    def message(self) -> str:
        """That a worker is lost, and what then."""
        return (
            f"{self.lost}; the last checkpoint is kept, and the same command goes on from it, also with another number "
            "of workers"
        )

    def blames(self, error: BaseException) -> bool:
        """Whether `error` came of a worker that is lost; waits until that is seen, if it may be so."""
        if isinstance(error, TrainboxError) and error.exit_code != RunFailedError.exit_code:
            return False  # whatever has a reason of its own keeps it
        cause = error.__cause__ or error
        if self._contact is not None and type(cause).__name__ in _UNANSWERED:
            self._seen.wait(self._patience)
        return self.lost is not None

    def end(self, error: BaseException | None) -> None:
        """Tell the others that this worker ends, and how."""
        if self._contact is not None:
            code = 0 if error is None else getattr(error, "exit_code", 1)
            self._contact.end(code=code, why=str(error or ""))


@contextlib.contextmanager
def gathered(config: RunConfig) -> Iterator[Crew]:
    """The crew of this process until the end of its run.

    Raises:
        UsageError: what tells of workers cannot be understood.
        RunFailedError: a worker was lost.
    """
    crew = Crew(cluster=clusters.find(config, os.environ))
    if crew.cluster:
        # A lost worker is told in one line; what TensorFlow says of it besides are the insides of its collectives.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        yield crew
    except BaseException as error:
        if crew.blames(error):
            raise RunFailedError(crew.message) from error
        crew.end(error)
        raise
    crew.end(None)


def _common(selection: Selection) -> dict[str, Any]:
    """What must be equal among workers."""
    return {
        "trainbox": trainbox.__version__,
        "packages": {n: v for n, v in provenance.packages().items() if n in ("tensorflow-cpu", "tensorflow", "keras")},
        "devices": [selection.kind, selection.replicas],
    }


def _compare(cluster: Cluster, everything: list[dict[str, Any]]) -> None:
    for address, told in zip(cluster.workers, everything, strict=True):
        for what in ("trainbox", "packages", "devices"):
            if told[what] == everything[0][what]:
                continue
            kind = DevicesError if what == "devices" else UsageError
            raise kind(
                f"worker {address} has {what} {told[what]}, and the chief {everything[0][what]}: all workers need the "
                "same; use one image, and as many devices on each"
            )
