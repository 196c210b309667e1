"""Streams with all that the gateway adds to them, for decoders: our rules of them, and clients themselves.

The relay's tests hold that what the gateway sends is one of these, ``tests/fakes/event_decoders.py``
has the rules that decode them in each run, and ``make check-clients`` has the clients decode them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from appliance.model.gateway import Api, Refusal
from appliance.routing import refusals
from appliance.routing.refusals import encode_error_event, encode_sign_of_life

MODEL: Final = "genesis"
NOW_UNIX_S: Final = 1.0
PATHS: Final[Mapping[Api, str]] = {
    Api.CHAT: "/v1/chat/completions",
    Api.COMPLETIONS: "/v1/completions",
    Api.RESPONSES: "/v1/responses",
    Api.ANTHROPIC: "/v1/messages",
}
TEXTS: Final = ("one ", "two \u00fc")
PIECES: Final[Mapping[Api, list[tuple[str, dict[str, Any]]]]] = {
    Api.CHAT: [
        ("", {"id": "c1", "choices": [{"index": 0, "delta": {"content": text}}]}) for text in TEXTS
    ],
    Api.COMPLETIONS: [
        ("", {"id": "c1", "choices": [{"index": 0, "text": text}]}) for text in TEXTS
    ],
    Api.RESPONSES: [
        (
            "response.output_text.delta",
            {
                "type": "response.output_text.delta",
                "delta": text,
                "sequence_number": number,
                "item_id": "m1",
                "output_index": 0,
                "content_index": 0,
                "logprobs": [],
            },
        )
        for number, text in enumerate(TEXTS)
    ],
    Api.ANTHROPIC: [
        (
            "content_block_delta",
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": text},
            },
        )
        for text in TEXTS
    ],
}
"""Name and data of each event of an engine."""
_REFUSALS: Final = tuple(found for found in vars(refusals).values() if isinstance(found, Refusal))


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedStream:
    """Stream that the gateway has added to.

    Attributes:
        events: Number of the engine's events, in the order of `PIECES`.
        shown: Message that a client has to show; empty: none.
    """

    name: str
    body: bytes
    events: int
    shown: str


def engine_stream(api: Api, line_end: bytes = b"\n", *, events: int = len(TEXTS)) -> bytes:
    """Return the first events of an engine."""
    out = b""
    for name, piece in PIECES[api][:events]:
        out += b"event: %b%b" % (name.encode(), line_end) if name else b""
        out += b"data: %b%b" % (json.dumps(piece, ensure_ascii=False).encode(), line_end * 2)
    return out


def added_streams(api: Api) -> Iterator[AddedStream]:
    """Return the streams of an API: signs of life, then events of an engine, then a refusal; any may be missing."""
    sign = encode_sign_of_life(api, PATHS[api], MODEL, NOW_UNIX_S)
    ends = {"LF": b"\n", "CRLF": b"\r\n"}
    for signs, events, line_end in product(range(3), range(len(TEXTS) + 1), ends):
        # All refusals where a held stream is refused; elsewhere one speaks for all.
        ends_held = (signs, events, line_end) == (1, 0, "LF")
        for refusal in (None, *(_REFUSALS if ends_held else [refusals.ENGINE_FAILED])):
            if not events and not refusal:
                # An engine that says nothing: LangChain fails at that, whatever is added.
                continue
            yield AddedStream(
                name=f"{signs} signs, {events} events, {line_end}, {refusal.code if refusal else 'whole'}",
                body=signs * sign
                + engine_stream(api, ends[line_end], events=events)
                + (encode_error_event(api, refusal) if refusal else b""),
                events=events,
                shown=refusal.message if refusal else "",
            )
