"""Asks the supervisor for a switch, over the socket that offers it nothing else."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import appliance
from appliance.protocol.control import MAX_LINE_BYTES, PROTOCOL_MAX, PROTOCOL_MIN, Exit, Verb

_GREETING_S: Final = 5.0

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """It serves, or what became of it will show: the supervisor left during the operation."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another operation runs."""


@dataclass(frozen=True, slots=True)
class Away:
    """The supervisor does not answer."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It does not serve."""

    why: str


Answer = Done | Busy | Away | Failed


async def ask_for_switch(socket: Path, name: str, on_behalf: str) -> Answer:
    """Have the box switched to a profile; returns when the operation is over.

    Args:
        socket: The supervisor's.
        name: The profile.
        on_behalf: Who wants it; the supervisor shows it beside who we are.
    """
    try:
        async with asyncio.timeout(_GREETING_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=MAX_LINE_BYTES)
    except (OSError, TimeoutError):
        return Away()
    try:
        writer.write(_request(name, on_behalf))
        return await _followed(reader)
    finally:
        writer.close()


def _request(name: str, on_behalf: str) -> bytes:
    request = {
        "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
        "version": appliance.__version__,
        "verb": Verb.SWITCH,
        "args": {"name": name, "on_behalf": on_behalf},
    }
    return json.dumps(request).encode() + b"\n"


async def _followed(reader: asyncio.StreamReader) -> Answer:
    """The end of the story. Only its beginning has a deadline: a load may take an hour."""
    accepted = False
    try:
        while True:
            async with asyncio.timeout(None if accepted else _GREETING_S):
                line = await reader.readline()
            if not line:
                return Done() if accepted else Away()
            event = json.loads(line)
            match event.get("event"):
                case "accepted":
                    accepted = True
                case "result" | "error":
                    return _ended(event)
                case _:
                    pass
    except TimeoutError:
        return Away()
    except (OSError, ValueError, AttributeError):
        return Done() if accepted else Away()


def _ended(event: Message) -> Answer:
    if event.get("exit") == Exit.OK:
        return Done()
    if event.get("exit") == Exit.BUSY:
        return Busy()
    return Failed(str(event.get("message") or "no reason given"))
