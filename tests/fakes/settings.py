"""Settings of the daemons, for tests."""

from typing import Any

from appliance.settings.printer import printed
from appliance.settings.schema import Settings
from appliance.settings.snapshot import SettingsSnapshot, snapshot_of


def make_snapshot(**given: Any) -> SettingsSnapshot:
    """Return the settings of a box with these in its file, and else the defaults."""
    return snapshot_of(printed(Settings(**given)))
