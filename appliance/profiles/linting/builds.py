"""Range of an engine's builds for which a trap holds."""

import re
from dataclasses import dataclass
from typing import Final

from appliance.model.engine_build import EngineBuild

BuildKey = tuple[int, ...]
"""Numbers of a version, in their order: (11549,) for b11549, (0, 33, 0) for 0.33.0."""

_COUNTED: Final = re.compile(r"\Ab?([0-9]{3,9})(?![.0-9])", re.ASCII)
"""Number of a build of llama.cpp; who builds without its history gets build 0 or 1, which tells nothing."""
_DOTTED: Final = re.compile(r"\Av?([0-9]{1,9}(?:\.[0-9]{1,9}){1,5})", re.ASCII)


def build_key(version: str) -> BuildKey | None:
    """Return the numbers of a version as its program tells it; None: it has none.

    llama.cpp counts its builds: ``b9596 (18ef86ece)``.
    vLLM and SGLang have versions such as ``0.33.0``.
    """
    if counted := _COUNTED.search(version):
        return (int(counted[1]),)
    dotted = _DOTTED.search(version)
    return None if dotted is None else tuple(map(int, dotted[1].split(".")))


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRange:
    """Builds from `since` on and before `until`, in the engine's own spelling; empty: no limit."""

    since: str = ""
    until: str = ""

    def holds(self, build: EngineBuild | None) -> bool | None:
        """Tell whether a build is in the range; None: the build is not known."""
        if not self.since and not self.until:
            return True
        key = None if build is None else build_key(build.version)
        if key is None:
            return None
        since, until = build_key(self.since), build_key(self.until)
        return (since is None or key >= since) and (until is None or key < until)

    @property
    def text(self) -> str:
        """Return the range for people."""
        if self.since and self.until:
            return f"builds from {self.since} until before {self.until}"
        if self.until:
            return f"builds before {self.until}"
        return f"builds from {self.since}" if self.since else "all builds"


ALL_BUILDS: Final = BuildRange()
