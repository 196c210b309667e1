"""Rules that profiles must meet."""

from typing import Any

import pytest

from appliance.adapters.profile_files.loading import parse_profile
from appliance.engines import ENGINES
from appliance.planning.profiles.rules import RULES
from tests.fakes.profile_texts import MINIMAL


class Recorder:
    """Stand-in for a profile that notes which of its keys are read."""

    def __init__(self, profile: Any) -> None:
        self.read: set[str] = set()
        self._profile = profile

    def __getattr__(self, name: str) -> Any:
        value = getattr(type(self._profile), name, None)
        if isinstance(value, property) and value.fget is not None:
            return value.fget(self)
        self.read.add(name)
        return getattr(self._profile, name)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_a_rule_reads_only_the_keys_that_it_names(engine: str) -> None:
    """A rule whose key has a fault is left out, so it must name every key that it reads."""
    profile = parse_profile("genesis", MINIMAL[engine].encode())
    for rule, keys in RULES:
        recorder: Any = Recorder(profile)
        assert not list(rule(recorder))
        recorder.read -= {"engine", "name"}
        if "options" in recorder.read:
            recorder.read = recorder.read - {"options"} | {engine}
        assert recorder.read <= keys, rule
