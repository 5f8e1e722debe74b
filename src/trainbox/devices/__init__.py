"""Which GPUs this machine has, which of them this process may use, and which of those a run takes (no TensorFlow)."""

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.devices.nvml import discover
from trainbox.devices.selection import Selection, choose, select
from trainbox.devices.visibility import Visibility, VisibleDevice, read_visible_devices

__all__ = [
    "Gpu",
    "MigInstance",
    "Selection",
    "Visibility",
    "VisibleDevice",
    "choose",
    "discover",
    "read_visible_devices",
    "select",
]
