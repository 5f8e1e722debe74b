"""Which GPUs this machine has, which of them this process may use, and which of those a run takes (no TensorFlow)."""

from trainbox.devices.gpu import Gpu, MigInstance
from trainbox.devices.listing import Listing, describe
from trainbox.devices.nvml import Inventory, discover, take_inventory
from trainbox.devices.selection import Selection, choose, select
from trainbox.devices.surroundings import Surroundings, look, warnings
from trainbox.devices.table import as_data, table
from trainbox.devices.visibility import Visibility, VisibleDevice, read_visible_devices

__all__ = [
    "Gpu",
    "Inventory",
    "Listing",
    "MigInstance",
    "Selection",
    "Surroundings",
    "Visibility",
    "VisibleDevice",
    "as_data",
    "choose",
    "describe",
    "discover",
    "look",
    "read_visible_devices",
    "select",
    "table",
    "take_inventory",
    "warnings",
]
