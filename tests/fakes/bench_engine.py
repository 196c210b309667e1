"""Engine behind a gateway as a bench sees it: streams a few tokens, with usage, to each request."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from tests.fakes.engine_server import EVENTS, LAST, Talk, chunk, sized

LEVEL_TWO = "use TypeScript"
"""Words of the prompts of concurrency 2, and of no other."""


class BenchEngine:
    """Script of an engine server.

    Args:
        tokens: Tokens of each answer.
        most_tokens: Longest answer that a request may ask for.
        broken: Names of models that answer something else.
        refusal: Status and error code of every response; None: it answers.
    """

    def __init__(
        self,
        *,
        tokens: int = 4,
        most_tokens: int = 1 << 20,
        broken: frozenset[str] = frozenset(),
        refusal: tuple[bytes, str] | None = None,
    ) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        """JSON of each request."""
        self._tokens = tokens
        self._most_tokens = most_tokens
        self._broken = broken
        self._refusal = refusal
        self._pair = asyncio.Barrier(2)

    async def __call__(self, talk: Talk) -> None:
        """Answer the one request of a connection."""
        body = json.loads((await talk.request()).body)
        self.bodies.append(body)
        if self._refusal is not None:
            status, code = self._refusal
            await talk.say(sized(json.dumps({"error": {"code": code}}).encode(), status))
        elif body.get("max_tokens", 0) > self._most_tokens:
            await talk.say(sized(b'{"error": {"code": "too_long"}}', b"400 Bad Request"))
        else:
            await self._answer(talk, body)
        await talk.reader.read()

    async def _answer(self, talk: Talk, body: Mapping[str, Any]) -> None:
        prompt = body["prompt"]
        if LEVEL_TWO in prompt:
            # Both requests are in flight before either is answered, on a busy machine, too.
            await self._pair.wait()
        await talk.say(EVENTS)
        word = "wrong" if body["model"] in self._broken else "right"
        for number in range(self._tokens):
            await talk.say(_event({"choices": [{"text": f"{word} {number} "}]}))
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": self._tokens}
        await talk.say(_event({"choices": [], "usage": usage}), chunk(b"data: [DONE]\n\n"), LAST)


def _event(value: object) -> bytes:
    return chunk(b"data: " + json.dumps(value).encode() + b"\n\n")
