"""Settings of the daemons, for tests."""

from typing import Any

from appliance.settings import Settings
from appliance.settings_printer import printed
from appliance.settings_snapshot import SettingsSnapshot, snapshot_of


def make_snapshot(**given: Any) -> SettingsSnapshot:
    """Return the settings of a box with these in its file, and else the defaults."""
    return snapshot_of(printed(Settings(**given)))
