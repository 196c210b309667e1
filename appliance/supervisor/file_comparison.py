"""Comparison of what runs with the files on disk, kept for a while: it costs a stat of each unit.

It is made anew after an apply, when another process of a model runs, and after `_KEPT_S`.
"""

from collections.abc import Callable
from typing import Final

from appliance.model.observed import Observed
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.settings.tables import Settings
from appliance.status.box_status import InstalledForm
from appliance.system.applied.installed_units import InstalledUnits
from appliance.system.applied.pending_changes import STARTED_FILE, ProfileDirectory, StartedUnits
from appliance.system.build_records import current_builds

_KEPT_S: Final = 10.0


class FileComparison:
    """Comparison, for frequent callers.

    Args:
        settings: Directories of this box.
        monotonic_s: Clock.
    """

    def __init__(self, settings: Settings, monotonic_s: Callable[[], float]) -> None:
        unit_dir, applied_dir = settings.unit_dir, settings.applied_dir
        self._monotonic_s = monotonic_s
        self._started = StartedUnits(unit_dir, settings.runtime_dir / STARTED_FILE)
        self._installed = InstalledUnits(unit_dir, applied_dir)
        self._builds_dir = str(applied_dir / BUILDS)
        self._profiles = ProfileDirectory(settings.profiles_dir, applied_dir)
        self._kept = InstalledForm()
        self._key: object = None
        self._at_s = 0.0

    def compared(
        self, catalogue: Catalogue, observed: Observed, edited: frozenset[str]
    ) -> InstalledForm:
        """Return the comparison of these profiles.

        Args:
            catalogue: The applied profiles.
            observed: Their units with details.
            edited: Profiles whose file differs from what is applied.
        """
        started = {
            name: unit.started_unix_s
            for name in catalogue
            if (unit := observed.unit(name)).main_pid and unit.started_unix_s
        }
        key, now_s = (catalogue, started, edited), self._monotonic_s()
        if key != self._key or now_s - self._at_s > _KEPT_S:
            self._kept = InstalledForm(
                outdated=self._started.outdated(started),
                unit_changes=self._installed.drift(catalogue),
                profile_files=self._profiles.rows(catalogue, edited),
                builds=current_builds(catalogue, self._builds_dir),
            )
            self._key, self._at_s = key, now_s
        return self._kept
