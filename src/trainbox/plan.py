"""How a global batch is dealt to shards and replicas; every duration becomes steps here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from trainbox.config import RunConfig
from trainbox.errors import UsageError

ROWS_A_SHARD = 64
REPRODUCIBLE_SHARDS = 8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The arithmetic of one run.

    `shards` (V) is a multiple of `replicas` (R); each shard has `rows` = ceil(global_batch / V) rows, spare ones with
    weight 0. `examples` are the training rows of one epoch.
    """

    replicas: int
    shards: int
    global_batch: int
    examples: int
    epochs: int

    @property
    def rows(self) -> int:
        """Rows of one shard."""
        return -(-self.global_batch // self.shards)

    @property
    def shards_per_replica(self) -> int:
        """Shards that one replica computes one after the other (K = V / R)."""
        return self.shards // self.replicas

    @property
    def rows_per_replica(self) -> int:
        """Rows of one global batch that one replica sees, spare ones included."""
        return self.rows * self.shards_per_replica

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one epoch; the last one may have fewer real rows."""
        return -(-self.examples // self.global_batch)

    @property
    def total_steps(self) -> int:
        """Steps of the whole run."""
        return self.steps_per_epoch * self.epochs

    def over(self, examples: int) -> Plan:
        """The plan of going once through `examples` rows with the same batch and shards, as an evaluation does."""
        return dataclasses.replace(self, examples=examples, epochs=1)


def make(config: RunConfig, *, replicas: int, examples: int, shards: int | None = None) -> Plan:
    """The plan of a run on `replicas` devices over `examples` training rows.

    `shards` is the V that a run being resumed already has; it wins over the default but not over a different wish.
    A global batch of more rows than there are is one of all rows: its spare rows would only cost memory.

    Raises:
        UsageError: the shards cannot be dealt to the replicas.
    """
    default = REPRODUCIBLE_SHARDS if config.reproducible else replicas
    shards = config.shards or shards or default
    _check(shards, replicas, reproducible=config.reproducible)
    batch = min(wished_batch(config, replicas=replicas, shards=shards), examples)
    return Plan(replicas=replicas, shards=shards, global_batch=batch, examples=examples, epochs=config.epochs)


def wished_batch(config: RunConfig, *, replicas: int, shards: int) -> int:
    """The global batch that the words ask for, however many rows there are."""
    if config.batch_size_per_replica is not None:
        return config.batch_size_per_replica * replicas
    assert not isinstance(config.batch_size, str), "a batch is found before a run is planned"
    return config.batch_size or ROWS_A_SHARD * shards


def _check(shards: int, replicas: int, *, reproducible: bool) -> None:
    if shards % replicas:
        below = max(shards // replicas, 1) * replicas
        raise UsageError(
            f"{shards} shards cannot be dealt evenly to {replicas} replicas; use --shards {below} or --shards "
            f"{below + replicas}, or another number of devices"
        )
    per_replica = shards // replicas
    if reproducible and replicas > 1 and per_replica & (per_replica - 1):
        raise UsageError(
            f"--reproducible needs a power of two of shards on each replica, and {shards} shards on {replicas} "
            f"replicas make {per_replica}; use another number of devices or "
            f"--shards {replicas * (1 << per_replica.bit_length())}"
        )
