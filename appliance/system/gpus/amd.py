"""AMD's GPUs, read from the text files of the amdgpu and amdkfd kernel drivers.

The files are those of the kernel's documents "amdgpu sysfs interface" and "DRM client usage
stats" (proc(5) fdinfo). No library is needed, and no call in here enters the GPU.
"""

from __future__ import annotations

import os

from appliance.system.gpus.states import DEVICE, EXACT, NO_DRIVER, OPAQUE, UNIFIED, DriverError
from appliance.system.kernel.text_files import is_number, meminfo, number_of, read, text_of

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


# --- the driver ----------------------------------------------------------------------

_DRM = ("sys", "class", "drm")
_KFD = ("sys", "class", "kfd", "kfd")
_DRIVER = "amdgpu"
_UNDIVIDED = ("", "SPX")
_CARVE_OUT_BYTES = 4 << 30
"""Most memory that is set aside for a processor's own graphics by default. Cards have more, or a
file with the maker of their memory."""
_UNKNOWN_MAKER = ("", "unknown")
_VRAM_KEYS = ("drm-resident-vram", "drm-memory-vram")
"""Names of the key for memory of a GPU in fdinfo; the second is the older name."""
_SHIFTS = {"KiB": 10, "MiB": 20, "GiB": 30}


def cards(root: str = "/") -> list[str]:
    """Return folders of the devices that amdgpu drives, in the order of their PCI addresses."""
    drm = os.path.join(root, *_DRM)
    try:
        names = [n for n in os.listdir(drm) if n.startswith("card") and n[4:].isdigit()]
    except OSError:
        return []
    found = {
        _address(folder): folder
        for n in names
        if _is_driven(folder := os.path.join(drm, n, "device"))
    }
    return [found[address] for address in sorted(found)]


def _is_driven(folder: str) -> bool:
    return _uevent(folder).get("DRIVER") == _DRIVER


def _address(folder: str) -> str:
    """Return the PCI address, like 0000:03:00.0."""
    return _uevent(folder).get("PCI_SLOT_NAME", "")


def _uevent(folder: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text_of(folder, "uevent").splitlines())
    return {name: value for name, _, value in pairs}


class Driver:
    """Reader of the cards that were found. Raises `DriverError` when no card is left."""

    def __init__(self, found: list[str], root: str = "/") -> None:
        self._cards = found
        self._root = root

    def read(self, with_processes: bool) -> list[dict[str, Any]]:  # noqa: FBT001
        """Return every device, in the order of PCI addresses."""
        if not any(map(_is_driven, self._cards)):
            raise DriverError(NO_DRIVER, "the amdgpu driver is not loaded (modprobe amdgpu)")
        users = _users(self._root) if with_processes else None
        return [self._card(i, folder, users) for i, folder in enumerate(self._cards)]

    def evidence(self) -> list[dict[str, Any]]:
        """Return every device with its processes and its state beside its memory."""
        devices = self.read(True)  # noqa: FBT003 - as the sampler calls it
        for device, folder in zip(devices, self._cards, strict=True):
            device["evidence"] = card_evidence(folder)
        return devices

    def hardware(self) -> list[dict[str, Any]]:
        """Return every device; compute capabilities and NVLinks are NVIDIA's."""
        return self.read(False)  # noqa: FBT003 - as the sampler calls it

    def watch(self) -> None:
        """Do nothing: amdgpu writes its errors to the kernel's log alone."""

    def errors(self) -> dict[str, Any]:
        """Return nothing, as for devices whose errors cannot be watched."""
        return {}

    def version(self) -> str:
        """Return the driver's version; empty: that of the kernel."""
        return module_version(self._root)

    def _card(
        self, index: int, folder: str, users: dict[str, list[dict[str, Any]]] | None
    ) -> dict[str, Any]:
        address = _address(folder)
        unique = text_of(folder, "unique_id")
        return {
            "index": index,
            # UUID as ROCR_VISIBLE_DEVICES spells it; a processor's own graphics have none.
            "uuid": f"GPU-{unique}" if unique.strip("0") else f"PCI-{address}",
            "name": text_of(folder, "product_name") or f"AMD GPU {text_of(folder, 'device')}",
            **_sizes(folder, self._root),
            "processes": None if users is None else users.get(address, []),
        }


def _sizes(folder: str, root: str) -> dict[str, Any]:
    total = number_of(folder, "mem_info_vram_total")
    used = number_of(folder, "mem_info_vram_used")
    if total is None or used is None:
        text = "the amdgpu driver does not report its memory"
        return _figures(0, 0, quality=OPAQUE) | {"kind": DEVICE, "problem": text}
    partition = text_of(folder, "current_compute_partition")
    if partition not in _UNDIVIDED:
        text = f"it is divided into partitions ({partition}), which the figures do not separate"
        return _figures(total, total - used, quality=OPAQUE) | {"problem": text}
    if total <= _CARVE_OUT_BYTES and text_of(folder, "mem_info_vram_vendor") in _UNKNOWN_MAKER:
        return _shared(folder, root, own=total, own_free=total - used)
    return _figures(total, total - used, quality=EXACT)


def _shared(folder: str, root: str, *, own: int, own_free: int) -> dict[str, Any]:
    """Return a processor graphics' memory: set aside for it, and of the host's up to the GTT."""
    gtt = number_of(folder, "mem_info_gtt_total") or 0
    gtt_free = gtt - (number_of(folder, "mem_info_gtt_used") or 0)
    _, available = meminfo(root)
    return _figures(own + gtt, own_free + min(gtt_free, available), quality=UNIFIED)


def _figures(total: int, free: int, *, quality: str) -> dict[str, Any]:
    free = max(0, free)
    return {
        "total": total,
        "free": free,
        "used": total - free,
        "reserved": 0,
        "quality": quality,
        "kind": "",
        "problem": "",
    }


class _Use:
    """Memory of one process on one card."""

    __slots__ = ("by_client", "computes")

    def __init__(self) -> None:
        self.by_client: dict[str, int] = {}
        """Bytes by the driver's client; copies of a descriptor belong to one client."""
        self.computes = False


def _users(root: str) -> dict[str, list[dict[str, Any]]]:
    """Return processes with memory on a card, by the card's PCI address.

    A process whose descriptors are hidden from us is listed only where it computes.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    computing = _computing(root)
    for pid in _pids(root):
        uses = _uses(os.path.join(root, "proc", str(pid)))
        for address, held in computing.get(pid, {}).items():
            use = uses.setdefault(address, _Use())
            # amdkfd counts the same allocations again.
            use.by_client = {"": max(held, sum(use.by_client.values()))}
            use.computes = True
        for address, use in uses.items():
            held = sum(use.by_client.values())
            if held or use.computes:
                process = {"pid": pid, "bytes": held, "compute": use.computes}
                found.setdefault(address, []).append(process)
    return found


def _pids(root: str) -> list[int]:
    return sorted(int(n) for n in os.listdir(os.path.join(root, "proc")) if n.isdigit())


def _uses(process: str) -> dict[str, _Use]:
    """Return the memory of the process in this folder of /proc, by PCI address."""
    uses: dict[str, _Use] = {}
    for name in _descriptors(process):
        facts = _facts(read(os.path.join(process, "fdinfo", name)))
        if "drm-pdev" not in facts:
            continue
        use = uses.setdefault(facts["drm-pdev"], _Use())
        held = next((_bytes(facts[key]) for key in _VRAM_KEYS if key in facts), 0)
        use.by_client[facts.get("drm-client-id", name)] = held
        use.computes |= _number(facts.get("drm-engine-compute", "")) > 0
    return uses


def _descriptors(process: str) -> list[str]:
    """Return the descriptors that may be of a GPU; none of a process that is hidden from us."""
    try:
        names = os.listdir(os.path.join(process, "fdinfo"))
    except OSError:
        return []
    return [name for name in names if _may_be_a_gpu(os.path.join(process, "fd", name))]


def _may_be_a_gpu(link: str) -> bool:
    try:
        return os.readlink(link).startswith("/dev/dri/")
    except OSError:
        return True


def _facts(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: rest.strip() for name, _, rest in pairs}


def _number(text: str) -> int:
    """Return the number at the beginning, like ``1234 ns``; zero when there is none."""
    word = text.partition(" ")[0]
    return int(word) if is_number(word) else 0


def _bytes(text: str) -> int:
    """Return the bytes of a size as the kernel writes it: ``12 MiB``, and bytes without a unit."""
    return _number(text) << _SHIFTS.get(text.partition(" ")[2], 0)


def _computing(root: str) -> dict[int, dict[str, int]]:
    """Return bytes by PCI address for every process that computes (ROCm), by its pid."""
    nodes = _kfd_addresses(root)
    folder = os.path.join(root, *_KFD, "proc")
    try:
        pids = [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return {}
    return {
        pid: {
            address: held
            for gpu, address in nodes.items()
            if (held := number_of(folder, str(pid), f"vram_{gpu}")) is not None
        }
        for pid in pids
    }


def _kfd_addresses(root: str) -> dict[str, str]:
    """Return PCI addresses by amdkfd's number of a GPU."""
    folder = os.path.join(root, *_KFD, "topology", "nodes")
    try:
        nodes = os.listdir(folder)
    except OSError:
        return {}
    found = {}
    for node in nodes:
        gpu = text_of(folder, node, "gpu_id")
        lines = (line.partition(" ") for line in text_of(folder, node, "properties").splitlines())
        values = {name: int(value) for name, _, value in lines if is_number(value)}
        if gpu not in {"", "0"} and "location_id" in values:  # the number of a processor is 0
            found[gpu] = _address_of(values.get("domain", 0), values["location_id"])
    return found


def _address_of(domain: int, location: int) -> str:
    """Return the PCI address from amdkfd's numbers: bus, device and function in 8, 5 and 3 bits."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
