"""Trials of prompts from the page: the gateway's ordinary client API, asked over a socket of this process alone.

Prompt and answer pass through and are kept nowhere: no log, no address and no error has them. A browser that
leaves ends its request at the engine.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from appliance.model.errors import BackendError, BusyError
from appliance.model.json_reader import decode_json
from appliance.speed.event_stream import EventStreamParser, text_of_choice
from appliance.system.front_client import FrontClient

MOST_PROMPT: Final = 8000
"""Characters of a prompt."""
MOST_TRIALS: Final = 2
"""Trials at once: this process has 32 tasks, and the box other clients."""
_MOST_TOKENS: Final = 1024
_MOST_BYTES: Final = 1 << 20
"""Bytes of an answer's stream: 1024 tokens take 300 KiB."""
_WITHIN_S: Final = 300.0
_PATH: Final = "/v1/chat/completions"
_BUSY: Final = "other prompts are being answered: try again when they are done"


class PromptTrials(Protocol):
    """Trials of prompts."""

    def answer(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        """Yield an answer in pieces. Raises `BusyError` before the first, `BackendError` where it fails."""
        ...


class GatewayTrials:
    """Trials through the gateway.

    Args:
        path: Socket of the gateway for this process.
    """

    def __init__(self, path: Path) -> None:
        self._client = FrontClient("localhost", 8010, path=path)
        self._running = 0

    async def answer(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        """Yield an answer in pieces."""
        if self._running >= MOST_TRIALS:
            raise BusyError(_BUSY)
        self._running += 1
        try:
            async for text in self._pieces(profile, prompt):
                yield text
        finally:
            self._running -= 1

    async def _pieces(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        parser = EventStreamParser(_MOST_BYTES)
        arrived: asyncio.Queue[bytes | None] = asyncio.Queue()
        body = {
            "model": profile,
            "messages": [{"role": "user", "content": prompt}],
            "stream": True,
            "max_tokens": _MOST_TOKENS,
        }
        asking = asyncio.create_task(
            self._client.post(
                _PATH, body, lambda piece, _at_s: arrived.put_nowait(piece), timeout_s=_WITHIN_S
            )
        )
        asking.add_done_callback(lambda _task: arrived.put_nowait(None))
        try:
            while (piece := await arrived.get()) is not None and not parser.overflowed:
                for data in parser.feed(piece):
                    if text := _text_of(data):
                        yield text
            if parser.overflowed:
                raise BackendError("the answer is too long to be shown")
            if fault := (await asking).fault:
                raise BackendError(f"the gateway's answer: {fault}")
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking


def _text_of(data: bytes) -> str:
    """Return the text of an event. Raises `BackendError` for one that is an error."""
    try:
        event = decode_json(data)
    except ValueError:
        return ""
    if not isinstance(event, dict):
        return ""
    if event.get("error") is not None:
        raise BackendError("the answer broke off: appliance status")
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return text_of_choice(choice) if isinstance(choice, dict) else ""
