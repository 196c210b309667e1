"""Profiles that are written as command lines: the shipped ones, and one for each engine with all of its keys."""

from typing import Final

from appliance.model.spec import Profile
from appliance.system.profile_files.loading import load_profile
from tests.programs import ROOT

_FOLDERS: Final = ("profiles", "tests/pins/boxes/engines", "tests/system/engines/profiles")


def rendered_profiles() -> tuple[Profile, ...]:
    """Return the profiles."""
    files = (file for folder in _FOLDERS for file in sorted((ROOT / folder).glob("*.toml")))
    return tuple(map(load_profile, files))
