"""State of systemd as a whole (SystemState of org.freedesktop.systemd1(5))."""

import asyncio
import logging
from typing import Final

from appliance.model.errors import UnitError
from appliance.system.systemd.bus import MANAGER_PATH, CallError, SystemBus

_log = logging.getLogger(__name__)

_STOPPING: Final = "stopping"
_PATIENCE_S: Final = 3.0


async def is_shutting_down() -> bool:
    """Tell whether the box shuts down or reboots; False also where systemd does not answer in time."""
    bus = SystemBus(on_changed=lambda *_: None, on_job_removed=lambda *_: None)
    try:
        async with asyncio.timeout(_PATIENCE_S), bus:
            values = await bus.get(MANAGER_PATH, "Manager", ("SystemState",))
    except (CallError, UnitError, OSError, EOFError, TimeoutError) as error:
        _log.warning("systemd does not say whether the box shuts down: %s", error)
        return False
    return bool(values["SystemState"] == _STOPPING)
