"""What the GPUs of a run do while it trains, read from NVML by a thread (no TensorFlow).

A GPU is found by its UUID: CUDA, NVML and a container each count in an order of their own. The number in `gpu/0/…` is
that of the replica. What a GPU does not tell is None, never 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

PERIOD_SECONDS = 1.0
# A sample may take this share of a core; where it takes long, there are fewer of them.
SHARE = 0.005

Reading = Mapping[str, float | None]

# What is read, and of which the highest value is told beside the mean.
NAMES = (
    "utilization",
    "memory_bytes",
    "memory_total_bytes",
    "power_watts",
    "temperature",
    "sm_clock_mhz",
    "memory_clock_mhz",
)
PEAKS = ("memory_bytes", "power_watts", "temperature")
NOTHING: Reading = dict.fromkeys(NAMES)


class Probe(Protocol):
    """One GPU: a reading each time that it is called, all None once it has failed for good."""

    def __call__(self) -> Reading: ...


class Means:
    """Mean and highest value of each reading since it was made; None for what was never told."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int, float]] = {}

    def add(self, reading: Reading) -> None:
        for name, value in reading.items():
            if value is not None:
                total, count, peak = self._sums.get(name, (0.0, 0, value))
                self._sums[name] = total + value, count + 1, max(peak, value)

    def mean(self, name: str) -> float | None:
        total, count, _ = self._sums.get(name, (0.0, 0, 0.0))
        return total / count if count else None

    def peak(self, name: str) -> float | None:
        return self._sums[name][2] if name in self._sums else None

    def as_scalars(self) -> dict[str, float | None]:
        """Every reading's mean by its name, and some peaks as `…_peak`."""
        means = {name: self.mean(name) for name in NAMES}
        return means | {f"{name}_peak": self.peak(name) for name in PEAKS}


class Monitor:
    """Samples every probe once a period, in a thread, from `start` to `stop`.

    `wait` sleeps for so many seconds, or shorter and returns True when it is over; `busy` is the time in seconds that
    the calling thread has kept a core busy.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        *,
        wait: Callable[[float], bool] | None = None,
        busy: Callable[[], float] = time.thread_time,
    ) -> None:
        self._probes = probes
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self._busy = busy
        self._lock = threading.Lock()
        self._last: list[Reading] = []
        self._since_line = [Means() for _ in probes]
        self._whole = [Means() for _ in probes]

    def start(self) -> None:
        """Begin to sample; nothing where there is no GPU."""
        if self._probes:
            threading.Thread(target=self.run, name="monitor", daemon=True).start()

    def stop(self) -> None:
        """Sample no more. Does not wait for a driver that hangs."""
        self._over.set()

    def run(self) -> None:
        """Sample until `wait` says that it is over, less often than once a period where a sample costs much."""
        while True:
            began = self._busy()
            self.sample()
            if self._wait(max(PERIOD_SECONDS, (self._busy() - began) / SHARE)):
                return

    def sample(self) -> None:
        """Ask every GPU once."""
        readings = [probe() for probe in self._probes]
        with self._lock:
            self._last = readings
            for means in (self._since_line, self._whole):
                for mean, reading in zip(means, readings, strict=True):
                    mean.add(reading)

    def take(self) -> dict[str, float | None]:
        """`gpu/0/utilization` and so on since the last call; None for what no sample told."""
        with self._lock:
            told, self._since_line = self._since_line, [Means() for _ in self._probes]
        scalars = enumerate(mean.as_scalars() for mean in told)
        return {f"gpu/{number}/{name}": value for number, values in scalars for name, value in values.items()}

    def latest(self) -> dict[str, float | None]:
        """`gpu/0/utilization` and so on as of the last sample; empty before the first."""
        return {f"gpu/{gpu}/{name}": value for gpu, told in enumerate(self._last) for name, value in told.items()}

    def begin_whole(self) -> None:
        """Begin anew what `whole` tells."""
        with self._lock:
            self._whole = [Means() for _ in self._probes]

    def whole(self) -> list[dict[str, float | None]]:
        """The same for each GPU since `begin_whole`."""
        with self._lock:
            return [mean.as_scalars() for mean in self._whole]


def probes(identifiers: Sequence[str], *, tell: Callable[[str], None]) -> list[Probe]:
    """A probe for each GPU or MIG instance, by its name in `CUDA_VISIBLE_DEVICES`; none where NVML cannot be asked.

    `tell` gets one line where something cannot be read.
    """
    import pynvml

    if numbers := [name for name in identifiers if not name.startswith(("GPU-", "MIG-"))]:
        tell(
            f"the GPUs are not sampled: only CUDA knows which GPU {numbers[0]} is; let CUDA_DEVICE_ORDER be "
            "PCI_BUS_ID, or name them by UUID"
        )
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        tell(f"the GPUs are not sampled: NVML does not start ({error})")
        return []
    return [_NvmlProbe(number, identifier, tell) for number, identifier in enumerate(identifiers)]


class _NvmlProbe:
    """One GPU through NVML. What it does not support is None; the first other failure is told, and no later one."""

    def __init__(self, number: int, identifier: str, tell: Callable[[str], None]) -> None:
        self._name = f"GPU {number} ({identifier[:12]})"
        self._identifier = identifier
        self._tell = tell
        self._told = self._lost = False
        self._handle: Any = None

    def __call__(self) -> Reading:
        if self._lost:
            return NOTHING
        if self._handle is None:
            import pynvml

            self._handle = self._asked(lambda: pynvml.nvmlDeviceGetHandleByUUID(self._identifier), final=True)
        readings = {name: value for question in self._questions() for name, value in self._answers(question).items()}
        return NOTHING if self._lost else dict(NOTHING) | readings

    def _answers(self, question: Callable[[], dict[str, float]]) -> dict[str, float]:
        return {} if self._lost else self._asked(question) or {}

    def _questions(self) -> list[Callable[[], dict[str, float]]]:
        import pynvml as nvml

        gpu = self._handle

        def memory() -> dict[str, float]:
            told = nvml.nvmlDeviceGetMemoryInfo(gpu)
            return {"memory_bytes": told.used, "memory_total_bytes": told.total} if told.total else {}

        return [
            lambda: {"utilization": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu},
            memory,
            lambda: {"power_watts": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000},
            lambda: {"temperature": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)},
            lambda: {"sm_clock_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)},
            lambda: {"memory_clock_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM)},
        ]

    def _asked(self, question: Callable[[], Any], *, final: bool = False) -> Any:
        """The answer, or None where there is none; after a `final` question that failed no other is asked."""
        import pynvml

        try:
            return question()
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED and not final:
                return None
            self._lost = final or error.value == pynvml.NVML_ERROR_GPU_IS_LOST
            self._fail(str(error))
        except Exception as error:  # the binding decodes what a driver gives, which may be anything
            self._lost = final
            self._fail(repr(error))
        return None

    def _fail(self, reason: str) -> None:
        if not self._told:
            self._told = True
            missing = "all its readings are" if self._lost else "some of its readings may be"
            self._tell(f"{self._name} cannot be read by NVML ({reason}): {missing} missing from now on")
