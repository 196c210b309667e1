"""Check that speculative decoding drafts where the profile declares it."""

from dataclasses import dataclass, replace
from typing import Final

from appliance.model.measurements import RawTimings

SILENT_PROBES: Final = 2
"""Probes in a row without a draft: one may have met an engine that had just begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftsWatch:
    """Probes in a row that drafted nothing, or whose drafts were all refused."""

    silent_probes: int = 0
    """Count up to `SILENT_PROBES`, which have been told."""

    def after(self, raw: RawTimings) -> "tuple[DraftsWatch, str | None]":
        """Return the watch after a valid probe, and the fact to tell; None: there is none."""
        if raw.drafted_tokens is None:
            return self, None
        useful = raw.drafted_tokens > 0 and raw.accepted_tokens != 0
        if useful:
            return DraftsWatch(), None
        if self.silent_probes >= SILENT_PROBES:
            return self, None
        counted = replace(self, silent_probes=self.silent_probes + 1)
        if counted.silent_probes < SILENT_PROBES:
            return counted, None
        if raw.drafted_tokens:
            return counted, "none of its drafts stood"
        return counted, "it drafted nothing"
