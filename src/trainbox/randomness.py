"""Everything random is a pure function of where it is used: (seed, epoch, row), (seed, step, shard, seed variable) or,
for augmentation, (seed, step, shard, place in the shard).

No stream is kept, so a resumed run, another number of replicas or another block size draws the same numbers. The mixing
function is written out here, because NumPy does not promise the same draws from one release to the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]

# The domains keep the draws for the order of rows, for the validation split, for the model and for augmentation apart.
ORDER, SPLIT, MODEL, AUGMENT = 1, 2, 3, 4


def mix(values: UInt64Array) -> UInt64Array:
    """splitmix64's finalizer: a bijection of 64 bits in which every input bit reaches every output bit.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    with np.errstate(over="ignore"):
        values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def fold(*coordinates: int | npt.NDArray[np.integer]) -> UInt64Array:
    """Hash of non-negative integer coordinates, broadcast together: equal shapes give an array of that shape."""
    state = np.zeros((), np.uint64)
    for coordinate in coordinates:
        state = mix(state ^ mix(np.asarray(coordinate).astype(np.uint64)))
    return state


def permutation(rows: int, *, seed: int, epoch: int, domain: int = ORDER) -> npt.NDArray[np.int32]:
    """The order in which epoch `epoch` visits `rows` rows: int32 of shape [rows]."""
    keys = fold(domain, seed, epoch, np.arange(rows))
    return np.argsort(keys, kind="stable").astype(np.int32)


def shard_seeds(
    *, seed: int, first_step: int, steps: int, shards: int, variables: int, practice: int = 0
) -> npt.NDArray[np.uint32]:
    """Seeds of the model's seed variables, then those of augmentation: uint32 [steps, shards, variables + practice, 2].

    Every (step, shard, variable) has two independent 32-bit words, so that no two layers, shards or steps share numbers
    and consecutive draws of one generator (which adds 1 to the second word) do not meet another shard's. From a seed of
    augmentation a shard's rows draw one after the other, so that its rows' places are in the hash too.
    """
    step = first_step + np.arange(steps)[:, None, None]
    shard = np.arange(shards)[None, :, None]
    words = [
        fold(domain, seed, step, shard, np.arange(count)[None, None, :])
        for domain, count in ((MODEL, variables), (AUGMENT, practice))
    ]
    both = np.concatenate(words, axis=-1)
    return np.stack([both >> np.uint64(32), both & np.uint64(0xFFFFFFFF)], axis=-1).astype(np.uint32)
