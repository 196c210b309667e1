"""Reader of the engines' logs for the web process, with bounds on what one answer costs."""

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Final

from appliance.model.errors import UnknownProfileError
from appliance.model.plain_text import last_redraw, plain
from appliance.model.wording import short
from appliance.system.ports import Clock, Host
from appliance.wire.status_socket import MOST_LOG_BYTES, MOST_LOG_CHARACTERS

_REACHES_BACK_S: Final = 7 * 86_400.0


class LogReader:
    """Reader for any number of callers: the journal is asked for one of them at a time.

    Args:
        host: Reads the journal.
        clock: For the time up to which the journal is searched.
        names: Returns the names of the applied profiles.
    """

    def __init__(self, host: Host, clock: Clock, names: Callable[[], Container[str]]) -> None:
        self._host = host
        self._clock = clock
        self._names = names
        self._turn = asyncio.Lock()

    async def lines(self, name: str, most: int) -> list[str]:
        """Return the last lines of the log of a profile, oldest first.

        Raises:
            UnknownProfileError: there is no such profile.
        """
        if name not in self._names():
            raise UnknownProfileError(f'no profile "{short(name)}"')
        since_unix_s = max(0.0, self._clock.unix_s() - _REACHES_BACK_S)
        async with self._turn:
            lines = await self._host.log_tail(name, most, since_unix_s=since_unix_s)
        return _bounded(lines)


def _bounded(lines: Sequence[str]) -> list[str]:
    """Return the newest lines that fit, as plain text, each cut."""
    kept, size = list[str](), 0
    for line in reversed(lines):
        cut = plain(last_redraw(line)[:MOST_LOG_CHARACTERS])
        size += len(cut.encode())
        if size > MOST_LOG_BYTES:
            break
        kept.append(cut)
    return kept[::-1]
