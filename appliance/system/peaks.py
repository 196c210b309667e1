"""Store of observed peaks, one file for each profile; `switch.memory.peak` has the format."""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from appliance.model.errors import StoreError
from appliance.model.paths import NEEDS
from appliance.switch.memory.peak import ObservedPeak, encoded
from appliance.system.files.durable import write_file
from appliance.system.launch_files import read_peak

_log = logging.getLogger(__name__)


class FilePeaks:
    """Port `Peaks`, on a directory.

    Args:
        state_dir: The supervisor's.
    """

    def __init__(self, state_dir: Path) -> None:
        self._directory = state_dir / NEEDS
        self._failing = False

    def peak(self, name: str) -> ObservedPeak | None:
        """Return the peak recorded for profile `name`; None: none that can be used."""
        return read_peak(self._directory, name)

    def peaks(self, names: Collection[str]) -> Mapping[str, ObservedPeak]:
        """Return the peaks of the profiles that have one; the directory lists which those may be."""
        try:
            files = os.listdir(self._directory)  # noqa: PTH208 - of names alone, for each status
        except OSError:
            return {}
        there = (file.removesuffix(".json") for file in files)
        found = {name: self.peak(name) for name in there if name in names}
        return {name: peak for name, peak in found.items() if peak is not None}

    async def record(self, name: str, peak: ObservedPeak) -> bool:
        """Replace a profile's peak durably; False: it could not be written. Never raises."""
        try:
            await asyncio.to_thread(self._write, name, peak)
        except (OSError, StoreError) as error:
            if not self._failing:
                _log.warning("the observed peak of %s could not be written: %s", name, error)
            self._failing = True
            return False
        if self._failing:
            _log.info("observed peaks can be written again")
        self._failing = False
        return True

    async def forget_all_but(self, names: Collection[str]) -> None:
        """Remove the peaks of profiles other than `names`. Never raises."""
        await asyncio.to_thread(self._remove_all_but, frozenset(names))

    def _remove_all_but(self, names: Collection[str]) -> None:
        for file in self._directory.glob("*.json"):
            if file.stem in names:
                continue
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                _log.warning(
                    "cannot remove the peak of a removed profile: %s: %s", file, error.strerror
                )
            else:
                _log.info("%s is no longer applied: its observed peak is removed", file.stem)

    def _write(self, name: str, peak: ObservedPeak) -> None:
        self._directory.mkdir(mode=0o755, exist_ok=True)
        write_file(self._directory / f"{name}.json", encoded(peak))
