"""Main memory, from /proc/meminfo."""

from pathlib import Path
from typing import Final

from appliance.domain.errors import ApplianceError
from appliance.domain.memory import HostMemory

_MEMINFO: Final = Path("/proc/meminfo")
_KIB: Final = 1024


def read_host_memory(meminfo: Path = _MEMINFO) -> HostMemory:
    """Main memory now. Raises `ApplianceError` when the kernel does not say."""
    try:
        values = _values(meminfo.read_text("ascii"))
        return HostMemory(
            total_bytes=values["MemTotal"] * _KIB, available_bytes=values["MemAvailable"] * _KIB
        )
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise ApplianceError(f"cannot read the size of the memory from {meminfo}") from error


def _values(text: str) -> dict[str, int]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if name.startswith("Mem")}
