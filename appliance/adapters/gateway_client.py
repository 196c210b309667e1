"""The gateway process, told and asked over gateway.sock (see appliance.gateway.control_server).

A gateway that is not there, or does not answer at once, is done without: clients then wait or
fail as they would without one, and no operation does. What serves is told again with every look
of the supervisor, so that a gateway that was away learns it within seconds; meanwhile it goes by
what it was told last.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from appliance.domain.gateway import State
from appliance.planning.status.summary import drained_text, held_text, released_text
from appliance.protocol.gateway import encode_state

_log = logging.getLogger(__name__)

_FIGURES_S: Final = 0.25
"""A status is not kept waiting longer."""
_HANDED_OVER_S: Final = 0.02
"""For a process that has been taken over from to stop listening."""
_MAX_LINE_BYTES: Final = 4 << 20

Answer = Mapping[str, Any]


class SocketGateway:
    """The port `Gateway`. `run` has to run for `route` to have an effect.

    Args:
        path: Of gateway.sock.
        patience_s: For an answer.
    """

    def __init__(self, path: Path, *, patience_s: float = 1.0) -> None:
        self._path = path
        self._patience_s = patience_s
        self._state = State()
        self._told = asyncio.Event()
        self._turn = asyncio.Lock()
        self._reload = False
        self._away = ""

    async def run(self) -> None:
        """Tell the gateway what serves, for ever."""
        while True:
            await self._told.wait()
            async with self._turn:
                self._told.clear()
                if self._reload:
                    self._reload = await self._ask({"verb": "reload"}) is None
                await self._ask({"verb": "route", "state": encode_state(self._state)})

    def route(self, state: State) -> None:
        """Serve by this from now on; does not wait."""
        self._state = state
        self._told.set()

    def reload(self) -> None:
        """Let it read keys and profiles again; does not wait."""
        self._reload = True
        self._told.set()

    async def hold(self, names: Sequence[str]) -> str | None:
        """Let new requests for `names` wait."""
        async with self._turn:
            # What is told while this is under way must not undo it.
            self._state = replace(self._state, held=self._state.held | set(names))
            answer = await self._ask({"verb": "hold", "names": list(names)})
        return None if answer is None else held_text(_count(answer, "waiting"))

    async def drain(self, names: Sequence[str], timeout_s: float) -> str | None:
        """Let requests in flight finish, at most `timeout_s`; cancelled, it cuts none."""
        if self._away:
            return None  # it did not even hold: nobody waits as long as a drain may take
        request = {"verb": "drain", "names": list(names), "timeout_s": timeout_s}
        answer = await self._ask(request, within_s=timeout_s + 2 * self._patience_s)
        if answer is None:
            return None
        return drained_text(_count(answer, "finished"), _count(answer, "cut"), timeout_s)

    async def release(self, state: State) -> str | None:
        """Serve by this, and let held requests go."""
        async with self._turn:
            self._state = state
            answer = await self._ask({"verb": "release", "state": encode_state(state)})
        return None if answer is None else released_text(_count(answer, "released"))

    async def stats(self) -> Mapping[str, object] | None:
        """What it has measured; None: it does not answer."""
        answer = await self._ask({"verb": "stats"}, within_s=_FIGURES_S)
        stats = None if answer is None else answer.get("stats")
        return stats if isinstance(stats, dict) else None

    async def _ask(self, request: Answer, *, within_s: float | None = None) -> Answer | None:
        """One request on a connection of its own; None: no answer in time.

        Its own, because closing it ends a drain, and nothing has to be found out about an old one.
        """
        line = json.dumps(request).encode() + b"\n"
        try:
            async with asyncio.timeout(within_s or self._patience_s):
                try:
                    answer = await _exchange(self._path, line)
                except _HungUpError:
                    # It has just handed over: a new connection is one to the new process.
                    await asyncio.sleep(_HANDED_OVER_S)
                    answer = await _exchange(self._path, line)
        except TimeoutError:
            self._is_away("it does not answer")
            return None
        except (OSError, ValueError) as error:
            self._is_away(str(error) or type(error).__name__)
            return None
        if not answer.get("ok"):
            self._is_away(f"{request['verb']}: {answer.get('error')}")
            return None
        if self._away:
            _log.info("the gateway answers")
        self._away = ""
        return answer

    def _is_away(self, why: str) -> None:
        """Say so when it begins, not each time."""
        if not self._away:
            _log.warning("no gateway (%s): operations go on without it", why)
        self._away = why


class _HungUpError(OSError):
    """There was a connection, and no answer."""


async def _exchange(path: Path, line: bytes) -> Answer:
    """Raises OSError or ValueError."""
    reader, writer = await asyncio.open_unix_connection(path, limit=_MAX_LINE_BYTES)
    try:
        try:
            writer.write(line)
            await writer.drain()
            said = await reader.readline()
        except ConnectionError as error:
            raise _HungUpError("it hung up") from error
        if not said:
            raise _HungUpError("it hung up")
        answer = json.loads(said)
        if not isinstance(answer, dict):
            raise ValueError("it babbles")  # noqa: TRY004 - whatever came is no answer
        return answer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def _count(answer: Answer, key: str) -> int:
    value = answer.get(key)
    return value if isinstance(value, int) else 0
