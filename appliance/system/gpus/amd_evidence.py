"""State of an AMD GPU beside its memory: clocks, power, heat, link. Imported by the sampler alone.

The files are those of the kernel's documents "amdgpu hwmon interfaces" and sysfs-bus-pci; a figure
that a card lacks is left out. amdgpu counts no energy, and tells its throttling in no text file.
"""

from __future__ import annotations

import os

from appliance.system.kernel.text_files import number_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SPEEDS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}
"""Generation of PCI Express by the speed of a lane in GT/s."""
_VERSION = ("sys", "module", "amdgpu", "version")


def card_evidence(folder: str) -> dict[str, Any]:
    """Return the figures of a card.

    Args:
        folder: Its device in sysfs.
    """
    sensors = _sensors(folder)
    power = _scaled(sensors, ("power1_average", "power1_input"), 1e6)
    core = _scaled(sensors, ("freq1_input",), 1e6)
    memory = _scaled(sensors, ("freq2_input",), 1e6)
    heat = _scaled(sensors, ("temp1_input",), 1e3)
    figures = {
        "sm_clock_mhz": None if core is None else round(core),
        "memory_clock_mhz": None if memory is None else round(memory),
        "power_w": power,
        "temperature_c": None if heat is None else round(heat),
        "pcie_width": number_of(folder, "current_link_width"),
        "pcie_generation": _SPEEDS.get(text_of(folder, "current_link_speed").partition(" ")[0]),
    }
    return {name: value for name, value in figures.items() if value is not None}


def module_version(root: str) -> str:
    """Return the version of the kernel module where it is not the kernel's own; empty: it is."""
    return text_of(root, *_VERSION)


def _sensors(folder: str) -> str:
    """Return the folder of the card's sensors; one that does not exist: it has none."""
    place = os.path.join(folder, "hwmon")
    try:
        names = sorted(os.listdir(place))
    except OSError:
        names = []
    return os.path.join(place, names[0]) if names else place


def _scaled(folder: str, names: tuple[str, ...], scale: float) -> float | None:
    found = (number_of(folder, name) for name in names)
    return next((number / scale for number in found if number is not None), None)
