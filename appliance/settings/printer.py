"""Printer of the settings for the daemons: ``python -I -m appliance.settings.printer``.

It prints one JSON document of plain values, or what is wrong with the settings on standard error
with status 78 (EX_CONFIG). See `appliance.settings.snapshot`.
"""

import json
import sys
from typing import Final

from appliance.model.errors import SettingsError
from appliance.settings.schema import Settings, load_settings

_EX_CONFIG: Final = 78
"""Status as in sysexits.h."""


def printed(settings: Settings) -> str:
    """Return the document: the settings, and the sockets that follow from them."""
    sockets = {
        "gateway_socket": settings.gateway_socket,
        "jobs_socket": settings.jobs_socket,
        "token_socket": settings.token_socket,
        "prompt_socket": settings.prompt_socket,
        "status_socket": settings.status_socket,
        "lane_socket": settings.lane_socket,
        "view_socket": settings.view_socket,
        "notify_socket": settings.notify_socket,
        "audit_socket": settings.audit_socket,
        "check_socket": settings.check_socket,
        "target_names": settings.target_names,
    }
    return json.dumps(settings.model_dump() | sockets, default=str)


def main() -> int:
    """Print the settings of this box; return the exit status."""
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return _EX_CONFIG
    sys.stdout.write(printed(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
