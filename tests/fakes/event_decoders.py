"""Decoders of event streams, one for each rule that clients are known to decode by.

The code is ours; the rules are those of the clients, and each says how it is known: *run*, ``make
check-clients`` runs the client on the same streams; *read*, in the source of the release that is named. Each takes the
bytes that a client receives and yields the events that it hands to its user: objects, parsed. An error that the client
shows its user is `ShownError`; whatever else is raised is a client that fails at what it was sent.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from appliance.model.gateway import Api

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


def _parsed(data: str) -> Json:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError(f"no object: {data!r}")
    if error := found.get("error"):
        raise ShownError(error["message"])
    return found


def _openai_events(body: bytes, *, counts_ids: bool) -> Iterator[Event]:
    """The SDKs of OpenAI and Anthropic: an event at each empty line after a name or data.

    With `counts_ids`, an `id` makes an event of each empty line after it, and a `retry` of the next.
    """
    name, data, last_id, retry = "", list[str](), "", ""
    # What follows the last line end is at most a field, and nothing dispatches it.
    *lines, _ = _LINE_END.split(body)
    for raw in lines:
        if not raw:
            if name or data or (counts_ids and (last_id or retry)):
                yield Event(name, "\n".join(data))
            name, data, retry = "", [], ""
            continue
        field, _, value = raw.decode().partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id":
            last_id = value
        elif field == "retry":
            retry = value


def _of_openai(events: Iterator[Event]) -> Iterator[Json]:
    for event in events:
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


def openai_python(body: bytes) -> Iterator[Json]:
    """OpenAI's SDK for Python, and LangChain for Python, which uses it (run)."""
    return _of_openai(_openai_events(body, counts_ids=True))


def openai_javascript(body: bytes) -> Iterator[Json]:
    """OpenAI's SDK for JavaScript (run)."""
    return _of_openai(_openai_events(body, counts_ids=False))


def anthropic_sdk(body: bytes) -> Iterator[Json]:
    """Anthropic's SDKs for Python and JavaScript (run): events that have a name and data, pings apart."""
    for event in _openai_events(body, counts_ids=True):
        if event.name == "error":
            raise ShownError(json.loads(event.data)["error"]["message"])
        if event.name not in {"", "ping"} and event.data:
            yield json.loads(event.data)


def _lines_of_go(body: bytes) -> Iterator[str]:
    # The line after the last end is read too, and can dispatch nothing.
    *lines, _ = body.split(b"\n")
    return (raw.removesuffix(b"\r").decode() for raw in lines)


def _go_events(lines: Iterator[str], *, skips_empty: bool) -> Iterator[Event]:
    """An event at each empty line, or at each with data before it; the name of one without data is dropped."""
    name, data = "", ""
    for line in lines:
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
    for event in _go_events(_lines_of_go(body), skips_empty=skips_empty):
        if event.data.startswith("[DONE]"):
            return
        found = json.loads(event.data)
        if "error" in found:
            # Be it null: whether there is one is all that is asked.
            raise ShownError((found["error"] or {}).get("message", ""))
        yield found


def openai_go_before_its_fix(body: bytes) -> Iterator[Json]:
    """openai-go before its pull request 621 (read in its issue 556, of 3.7.0): what an empty line ends is an event, be it empty."""
    return _openai_go(body, skips_empty=False)


def openai_go(body: bytes) -> Iterator[Json]:
    """openai-go since then (read in its `ssestream`): an empty line without data before it is no event."""
    return _openai_go(body, skips_empty=True)


def anthropic_go(body: bytes) -> Iterator[Json]:
    """anthropic-sdk-go (read in its `ssestream`): an event at each empty line, those without a name left out."""
    for event in _go_events(_lines_of_go(body), skips_empty=False):
        if event.name == "error":
            raise ShownError(json.loads(event.data)["error"]["message"])
        if event.name not in {"", "ping"}:
            yield json.loads(event.data)


def _lines_of_callbacks(body: bytes) -> Iterator[str]:
    *lines, _ = _LINE_END.split(body)
    return (raw.decode() for raw in lines)


def langchain_javascript(body: bytes) -> Iterator[Json]:
    """Models of LangChain for JavaScript without an SDK (run): data of an event `error` are shown as they are."""
    for event in _go_events(_lines_of_callbacks(body), skips_empty=True):
        if event.name == "error":
            raise ShownError(json.loads(event.data)["error"]["message"])
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


def fetch_event_source(body: bytes) -> Iterator[Json]:
    """fetch-event-source of Microsoft (run): an event at each empty line, be it empty, for a callback that parses it."""
    for event in _go_events(_lines_of_callbacks(body), skips_empty=False):
        if event.data.startswith("[DONE]"):
            return
        yield _parsed(event.data)


def event_source(body: bytes) -> Iterator[Json]:
    """The package eventsource, a browser's EventSource (run), fed byte by byte; half an event at the end is dropped."""
    for event in _standard_events(body, strict=False):
        if event.data == "[DONE]":
            return
        yield _parsed(event.data)


def strict_standard(body: bytes) -> Iterator[Json]:
    """eventsource-parser, with its errors raised (run): the standard's grammar, and no field that it does not name."""
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
    """The benchmark of vLLM and many scripts (read): blocks between empty lines, each one line of data."""
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


_OF_ALL: Final = (langchain_javascript, fetch_event_source, event_source, strict_standard)
_OF_OPENAI: Final = (
    *(openai_python, openai_javascript, openai_go_before_its_fix, openai_go),
    *_OF_ALL,
)
DECODERS: Final[Mapping[Api, tuple[Decoder, ...]]] = {
    Api.CHAT: (*_OF_OPENAI, block_splitter, line_reader),
    Api.COMPLETIONS: (*_OF_OPENAI, block_splitter, line_reader),
    Api.RESPONSES: _OF_OPENAI,
    Api.ANTHROPIC: (anthropic_sdk, anthropic_go, *_OF_ALL),
}
"""Decoders by the API whose clients use them."""
