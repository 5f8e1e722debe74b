"""All that the checks look at. They read files below `root` and nothing else of this machine by themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainbox.devices import Gpu, Inventory, Listing, Surroundings
from trainbox.devices.health import Barrier, Health
from trainbox.doctor.cuda import Cuda
from trainbox.gpu_libraries import Library
from trainbox.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Case:
    """One process on one machine, and what it is asked to do.

    `site` is the folder that TensorFlow is installed in, None where it is not installed; `packages` maps every
    distribution to its version; `prefix` is the folder of this Python, `paths` where it looks for modules, and
    `isolated` whether it ignores the environment; `origins` maps a module to its file. `dotenv` holds what `.env` sets,
    `applied` what of it came into effect. Callables are asked only by the check that needs their answer, since each
    takes its time; `compare` is None where TensorFlow is not to be loaded.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=dict)
    inventory: Inventory = field(default_factory=lambda: Inventory(absence="no library"))
    listing: Listing = field(default_factory=lambda: Listing(rows=(), usable=0))
    around: Surroundings = field(default_factory=Surroundings)
    health: tuple[Health, ...] = ()
    barriers: tuple[Barrier, ...] = ()
    cuda: Callable[[], Cuda] = Cuda
    built_for_gpus: bool = True
    libraries: Callable[[], list[Library]] = list
    compare: Callable[[], Compared] | None = None
    site: Path | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    python: tuple[int, int] = (3, 13)
    prefix: Path = Path("/usr")
    paths: tuple[str, ...] = ()
    origins: Mapping[str, Path] = field(default_factory=dict)
    isolated: bool = False
    dotenv: Mapping[str, str] = field(default_factory=dict)
    applied: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=lambda: Limits(schedulable=1))
    shared_memory_bytes: int | None = None
    device: str = "auto"
    threads: int = 0
    data_dir: Path = Path("/data")
    output_dir: Path = Path("/output")

    @property
    def usable(self) -> list[Gpu]:
        """The GPUs that this process may use, or may use as far as anybody but CUDA knows."""
        return [row.gpu for row in self.listing.rows if row.gpu is not None and row.usable is not False]

    @property
    def hardware(self) -> list[str]:
        """The PCI addresses of NVIDIA's GPUs as the kernel lists them, with a driver or without."""
        found = []
        for folder in sorted((self.root / "sys/bus/pci/devices").glob("*")):
            # 0x03: a display controller, which includes those that have no display.
            if _word(folder / "vendor") == "0x10de" and _word(folder / "class").startswith("0x03"):
                found.append(folder.name)
        return found

    @property
    def gpus_are_expected(self) -> bool:
        """Whether a run here is meant to take GPUs that the machine has."""
        there = bool(self.inventory.gpus or self.hardware or (self.root / "proc/driver/nvidia").exists())
        return self.device == "gpu" or (self.device == "auto" and self.built_for_gpus and there)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """TensorFlow's own count of the GPUs, None where it could not be asked, and where it parts from the machine's."""

    count: int | None = None
    difference: str = ""


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
