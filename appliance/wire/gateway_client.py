"""Client of gateway.sock: one command on a connection of its own.

Its own, because closing it ends a drain, and an old one would have to be found out about.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from appliance.wire.gateway import (
    MAX_ANSWER_BYTES,
    CommandRefused,
    GatewayAnswer,
    GatewayCommand,
    decode_answer,
    encode_command,
)

_HANDED_OVER_S: Final = 0.02
"""Time for a process that has handed over to another to stop listening."""


async def ask_gateway(
    path: Path, command: GatewayCommand, *, within_s: float
) -> GatewayAnswer | CommandRefused:
    """Return the gateway's answer to a command.

    Raises:
        TimeoutError: it does not answer within `within_s`.
        OSError: it is not there.
        ValueError: what comes is no answer.
    """
    async with asyncio.timeout(within_s):
        try:
            return await _exchange(path, command)
        except _HungUpError:
            # The process has just handed over: a new connection is one to the next process.
            await asyncio.sleep(_HANDED_OVER_S)
            return await _exchange(path, command)


class _HungUpError(OSError):
    """Connection that was closed without an answer."""


async def _exchange(path: Path, command: GatewayCommand) -> GatewayAnswer | CommandRefused:
    reader, writer = await asyncio.open_unix_connection(path, limit=MAX_ANSWER_BYTES)
    try:
        try:
            writer.write(encode_command(command))
            await writer.drain()
            line = await reader.readline()
        except ConnectionError as error:
            raise _HungUpError("the gateway closed the connection") from error
        if not line:
            raise _HungUpError("the gateway closed the connection")
        return decode_answer(line)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
