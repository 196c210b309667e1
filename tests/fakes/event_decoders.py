"""Decoders of event streams, one for each rule that clients are known to decode by.

The rules are those of the clients' sources; the code is ours. Each takes the bytes that a client
receives and yields the events that it hands to its user: objects, parsed. An error that the client
shows its user is `ShownError`; whatever else is raised is a client that fails at what it was sent.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from appliance.domain.gateway import Api

Json = dict[str, Any]
Decoder = Callable[[bytes], Iterator[Json]]


class ShownError(Exception):
    """Error that a client shows, with the message in the stream."""


@dataclass(slots=True)
class Event:
    """Event as it was dispatched."""

    name: str
    data: str


_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_PAIR: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def _parsed(data: str) -> Json:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"no object: {data!r}")
    if error := found.get("error"):
        raise ShownError(error["message"])
    return found


def _openai_events(body: bytes) -> Iterator[Event]:
    """The SDKs of OpenAI and Anthropic: whole blocks, then line by line; an empty event is none."""
    end = 0
    for pair in _PAIR.finditer(body):
        block, end = body[end : pair.end()], pair.end()
        name, data = "", []
        for raw in _LINE_END.split(block):
            field, _, value = raw.decode().partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        if name or data:
            yield Event(name, "\n".join(data))


def openai_sdk(body: bytes) -> Iterator[Json]:
    """OpenAI's SDKs for Python and JavaScript, and LangChain for Python, which uses the first."""
    for event in _openai_events(body):
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


_ANTHROPIC_EVENTS: Final = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


def anthropic_sdk(body: bytes) -> Iterator[Json]:
    """Anthropic's SDKs: events by their names, others are left out."""
    for event in _openai_events(body):
        if event.name == "error":
            raise ShownError(json.loads(event.data)["error"]["message"])
        if event.name in _ANTHROPIC_EVENTS:
            yield json.loads(event.data)


def _go_events(body: bytes, *, skips_empty: bool) -> Iterator[Event]:
    """openai-go: an event at each empty line, until its fix also without any data."""
    name, data = "", ""
    for raw in body.split(b"\n"):
        line = raw.removesuffix(b"\r").decode()
        if not line:
            if data or not skips_empty:
                yield Event(name, data)
            name, data = "", ""
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data += value + "\n"


def _openai_go(body: bytes, *, skips_empty: bool) -> Iterator[Json]:
    # A scanner of lines has no line after the last end.
    for event in _go_events(body.removesuffix(b"\n"), skips_empty=skips_empty):
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


def openai_go_before_its_fix(body: bytes) -> Iterator[Json]:
    """openai-go: what an empty line ends is an event, be it empty."""
    return _openai_go(body, skips_empty=False)


def openai_go(body: bytes) -> Iterator[Json]:
    """openai-go since its fix."""
    return _openai_go(body, skips_empty=True)


def langchain_js(body: bytes) -> Iterator[Json]:
    """LangChain for JavaScript, and fetch-event-source: an event at each empty line, dropped without data."""
    for event in _go_events(body, skips_empty=True):
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


def event_source(body: bytes) -> Iterator[Json]:
    """A browser's EventSource, by the HTML standard, fed byte by byte; half an event at the end is dropped."""
    for event in _standard_events(body, strict=False):
        if event.data == "[DONE]":
            return
        yield _parsed(event.data)


def strict_standard(body: bytes) -> Iterator[Json]:
    """A decoder by the standard's grammar, which refuses fields that it does not name."""
    for event in _standard_events(body, strict=True):
        if event.data == "[DONE]":
            return
        yield _parsed(event.data)


def _standard_events(body: bytes, *, strict: bool) -> Iterator[Event]:
    name, data, line, last = "", "", bytearray(), b""
    for number in body:
        byte = bytes((number,))
        if byte == b"\n" and last == b"\r":
            last = byte
            continue
        last = byte
        if byte not in {b"\r", b"\n"}:
            line += byte
            continue
        text = line.decode()
        line.clear()
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if not text:
            if data:
                yield Event(name, data.removesuffix("\n"))
            name, data = "", ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
        elif strict and field not in {"", "id", "retry"}:
            raise ValueError(f"no field: {field!r}")


def block_splitter(body: bytes) -> Iterator[Json]:
    """The benchmark of vLLM and many scripts: blocks between empty lines, each one line of data."""
    *blocks, _ = body.split(b"\n\n")
    for raw in blocks:
        block = raw.decode().strip()
        if not block or block.startswith(":"):
            continue
        data = block.removeprefix("data: ")
        if data == "[DONE]":
            return
        yield _parsed(data)


def line_reader(body: bytes) -> Iterator[Json]:
    """Scripts that read line by line and look for `data: `."""
    for raw in body.split(b"\n"):
        line = raw.decode().strip()
        if not line.startswith("data: "):
            continue
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            return
        yield _parsed(data)


_OF_ALL: Final = (openai_sdk, openai_go_before_its_fix, openai_go, langchain_js, event_source)
_OF_LINES: Final = (*_OF_ALL, strict_standard)
DECODERS: Final[Mapping[Api, tuple[Decoder, ...]]] = {
    Api.CHAT: (*_OF_LINES, block_splitter, line_reader),
    Api.COMPLETIONS: (*_OF_LINES, block_splitter, line_reader),
    Api.RESPONSES: _OF_LINES,
    Api.ANTHROPIC: (anthropic_sdk, event_source, strict_standard, langchain_js),
}
"""Decoders by the API whose clients use them."""
