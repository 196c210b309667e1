"""Network of this box: whether it reaches any other machine, as far as its own requests show.

=============================  ====================================================================
no other machine is reached    when
=============================  ====================================================================
by the heartbeat               it asked the outside watch or targets, and none was reached
by the checks                  there are two or more `[[watch]]` entries on other machines, all down
=============================  ====================================================================
"""

from collections.abc import Callable, Collection
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import BoxLook

_FEWEST: Final = 2
"""Services on other machines that are down at once for one cause; a single one may be down itself."""


class OwnNetwork:
    """Judgement on the network of this box.

    Args:
        unreached_unix_s: Returns since when no outside machine took a sign of life; None: one did, or
            none was asked.
    """

    def __init__(self, unreached_unix_s: Callable[[], float | None]) -> None:
        self._unreached_unix_s = unreached_unix_s
        self._all_down_unix_s: float | None = None

    def down_since(self, look: BoxLook, remote: Collection[str]) -> float | None:
        """Return since when no other machine was reached; None: one is, or that is not known.

        Args:
            look: The box at this look.
            remote: Names of the watches on other machines.
        """
        answers = [one.is_up for one in look.watches if one.name in remote]
        if len(answers) < _FEWEST or any(up is not False for up in answers):
            self._all_down_unix_s = None
        elif self._all_down_unix_s is None:
            self._all_down_unix_s = look.unix_s
        found = (self._unreached_unix_s(), self._all_down_unix_s)
        return min((since for since in found if since is not None), default=None)
