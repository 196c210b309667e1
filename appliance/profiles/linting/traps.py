"""Table of all traps, and names of those that are gone."""

from collections.abc import Mapping
from typing import Final

from appliance.model.trap_names import TrapName
from appliance.profiles.linting import (
    common_traps,
    drafting_traps,
    llama_cpp_traps,
    pytorch_traps,
)
from appliance.profiles.linting.trap import Trap

TRAPS: Final[tuple[Trap, ...]] = (
    *common_traps.TRAPS,
    *drafting_traps.TRAPS,
    *llama_cpp_traps.TRAPS,
    *pytorch_traps.TRAPS,
)
RETIRED: Final[Mapping[TrapName, str]] = {}
"""Traps that no build in use has any more, each with the reason: a profile may go on naming them."""
