"""Tiers of XID errors: what each asks of a person.

Source: NVIDIA's "Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, for Ampere and
newer, read in November 2026), column "Immediate Action". Where the driver itself tells a recovery action
(`GpuLook.recovery_action`), its verdict counts, not the tier.

===============  ==================================  ============================================
tier             immediate action of the catalogue   what follows
===============  ==================================  ============================================
``none``         IGNORE, and 45, which each killed   nothing is told
                 process causes
``application``  RESTART_APP                         one program has failed; the GPU is well
``reset``        RESET_GPU, and the workflows of     the GPU has to be reset before it is used
                 48, 74 and 144 to 150, which lead
                 to a reset
``reboot``       RESTART_BM, RESTART_VM              the box has to be started anew
``hardware``     CHECK_MECHANICALS, and those where  the card, its seat or its power cable
                 no repair by software is left       is at fault
===============  ==================================  ============================================
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ErrorTier(StrEnum):
    """Tier of an error; a later one is worse."""

    NONE = "none"
    APPLICATION = "application"
    RESET = "reset"
    REBOOT = "reboot"
    HARDWARE = "hardware"

    @property
    def rank(self) -> int:
        """Return the place of the tier, from the mildest."""
        return list(ErrorTier).index(self)


_CODES: Final[Mapping[ErrorTier, frozenset[int]]] = {
    ErrorTier.NONE: frozenset(
        {14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141}
        | {152, 153, 154, 159, 160, 161, 162, 163, 164, 165}
    ),
    ErrorTier.APPLICATION: frozenset(
        {8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84}
        | {85, 86, 88, 89, 94, *range(96, 106), *range(126, 136), 139}
    ),
    ErrorTier.RESET: frozenset(
        {46, 48, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, *range(144, 151)}
        | {155, 156, 158}
    ),
    ErrorTier.REBOOT: frozenset({79, 151}),
    ErrorTier.HARDWARE: frozenset({54, 157}),
}
_TIERS: Final = {code: tier for tier, codes in _CODES.items() for code in codes}
_NAMES: Final[Mapping[int, str]] = {
    13: "exception in a program's kernel",
    31: "memory page fault of a program",
    46: "the GPU stopped processing",
    48: "uncorrectable memory error",
    54: "auxiliary power is not connected",
    62: "a microcontroller has halted",
    64: "a memory row could not be remapped",
    74: "NVLink error",
    79: "fallen off the bus",
    94: "memory error, contained in one program",
    95: "memory error that may affect every program",
    109: "a context switch took too long",
    119: "its firmware does not answer",
    120: "its firmware has failed",
    140: "memory error that was not recovered",
    143: "the GPU could not be initialised",
    158: "the GPU did not answer in time",
}
MEMORY_CODES: Final = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
"""Errors of the memory, which its error counters and its remapped rows tell too."""


def tier_of(code: int) -> ErrorTier:
    """Return the tier of an XID; one that the table does not list is told, as an application's."""
    return _TIERS.get(code, ErrorTier.APPLICATION)


def error_text(code: int) -> str:
    """Return an XID as text: ``XID 79 (fallen off the bus)``."""
    return f"XID {code} ({_NAMES[code]})" if code in _NAMES else f"XID {code}"
