"""The jobs of `trainbox data`: what lies prepared, what a data set is, and making, checking and cleaning it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainbox.config import RunConfig
from trainbox.data import arrays
from trainbox.data.about import about
from trainbox.data.holdings import holdings
from trainbox.data.leftovers import clean
from trainbox.data.prepare import prepare
from trainbox.data.verifying import verify
from trainbox.data.view import View
from trainbox.errors import DataError

Say = Callable[[str], None]


def list_data(data_dir: Path) -> list[dict[str, Any]]:
    """Every prepared data set: name, version, splits with their rows, size in bytes, path."""
    return [asdict(one) for one in holdings(_absolute(data_dir))]


def describe_data(name: str, config: RunConfig) -> dict[str, Any]:
    """What a data set is, prepared or not; see `trainbox.data.about.About`. Raises DataError."""
    return asdict(about(name, data_dir=_absolute(config.data_dir), view=View.of(config)))


def prepare_data(names: Sequence[str], config: RunConfig, *, say: Say) -> None:
    """Prepare each of `names`, all that can be. Raises DataError when one cannot."""
    view = View.of(config)
    _load_tensorflow()

    def one(name: str) -> None:
        info = prepare(name, data_dir=config.data_dir, view=view, offline=config.offline, say=say)
        # Where a run may not write, it finds them decoded.
        for split in info.splits:
            arrays.load(info, split, say=say)
        say(f"data set {name} is prepared in {info.path}: {in_rows(info.splits)}")

    _each(names, one, say, failed="not prepared")


def verify_data(names: Sequence[str], config: RunConfig, *, say: Say) -> None:
    """Read each of `names` whole, on the CPU. Raises DataError when one is damaged or not prepared."""
    view = View.of(config)
    _load_tensorflow()

    def one(name: str) -> None:
        info, recorded = verify(name, data_dir=_absolute(config.data_dir), view=view)
        files = f"{len(info.checksums)} file{'s' * (len(info.checksums) != 1)}"
        sums = "as written" if recorded else "readable, without recorded SHA-256 to compare with"
        say(f"data set {name} in {info.path} is whole: {files} {sums}, {in_rows(info.splits)}")

    _each(names, one, say, failed="not whole")


def clean_data(data_dir: Path, *, dry_run: bool, say: Say) -> None:
    """Remove what dead preparations left, or only tell of it. Raises DataError."""
    data_dir = _absolute(data_dir)
    told = clean(data_dir, dry_run=dry_run)
    dead = [one for one in told if not one.live]
    for one in told:
        done = "left alone, a preparation may be running" if one.live else "would remove" if dry_run else "removed"
        say(f"{done}: {one.path} ({in_units(one.size_bytes)})")
    room = in_units(sum(one.size_bytes for one in dead))
    if not dead:
        say(f"nothing to remove in {data_dir}")
    else:
        say(f"{room} {'would be' if dry_run else 'are'} free again in {data_dir}")


def in_rows(splits: dict[str, int]) -> str:
    """Splits with their rows, as `train 60,000, test 10,000`."""
    return ", ".join(f"{name} {rows:,}" for name, rows in splits.items())


def in_units(size: int) -> str:
    """Bytes in the unit that suits them, as `11.3 MiB`."""
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"


def _each(names: Sequence[str], work: Callable[[str], None], say: Say, *, failed: str) -> None:
    """Do `work` for every name; of one its error is raised, of several each is said and the last line names them."""
    wrong = []
    for name in dict.fromkeys(names):
        try:
            work(name)
        except DataError as error:
            if len(names) == 1:
                raise
            say(str(error))
            wrong.append(name)
    if wrong:
        raise DataError(f"{len(wrong)} of {len(names)} data sets are {failed}: {', '.join(wrong)}; see the lines above")


def _load_tensorflow() -> None:
    """Reading needs no GPU, and must not take the memory of one that a run uses."""
    os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2")
    from trainbox import loading

    loading.load_tensorflow()


def _absolute(data_dir: Path) -> Path:
    return data_dir.expanduser().absolute()
