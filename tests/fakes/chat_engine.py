"""Engine that answers the standard canaries in a probe lane, and breaks a share of its tool calls."""

import json
import random
from collections.abc import Mapping
from typing import Any

from tests.fakes.probe_lane import LaneAnswer, LaneRequest

_CITY = {"city": "Lyon", "continent": "Europe", "coastal": False, "neighbours": 8}
_REMINDER = {"text": 'say "hi"', "minutes": 5, "urgent": False}


class ChatEngine:
    """Engine with answers of one second each.

    Args:
        broken_share: Share of tool calls with arguments that are cut.
        seed: Of the choice which ones.
    """

    def __init__(self, broken_share: float = 0.0, *, seed: int = 1) -> None:
        self.broken_share = broken_share
        self.text: str | None = None
        """Answer to everything; None: as the request wants."""
        self._chance = random.Random(seed)  # noqa: S311 - a simulation

    def answer(self, request: LaneRequest) -> LaneAnswer:
        """Return the answer to a request."""
        body: Mapping[str, Any] = request.body or {}
        arguments = json.dumps(_REMINDER)
        if self._chance.random() < self.broken_share:
            arguments = arguments[:-4]
        if self.text is not None:
            message: dict[str, Any] = {"content": self.text}
        elif "tools" in body:
            name = body["tools"][0]["function"]["name"]
            message = {"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        else:
            message = {"content": json.dumps(_CITY)}
        return chat_answer(message, streamed=body["stream"])


def chat_answer(message: Mapping[str, Any], *, streamed: bool) -> LaneAnswer:
    """Return an answer with a message, whole or as a stream of pieces."""
    if not streamed:
        document = {"choices": [{"message": message, "finish_reason": "stop"}]}
        return LaneAnswer(pieces=[(1.0, json.dumps(document).encode())])
    deltas: list[Mapping[str, Any]] = []
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"]
        begin = {"name": function["name"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": index, "function": begin}]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in _parts(function["arguments"])
        ]
    deltas += [{"content": part} for part in _parts(message.get("content") or "")]
    events: list[Mapping[str, Any]] = [{"choices": [{"delta": delta}]} for delta in deltas]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    middle = len(body) // 2
    return LaneAnswer(pieces=[(0.5, body[:middle].encode()), (0.5, body[middle:].encode())])


def _parts(text: str) -> list[str]:
    return [text[begin : begin + 7] for begin in range(0, len(text), 7)]
