"""Parsers that meet bytes from outside, each with inputs that grow."""

import asyncio
import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.gateway import request_body, request_head, response
from appliance.gateway.request_body import ChunkedDecoder
from appliance.gateway.request_head import CachedHead, RequestHead
from appliance.gateway.response import ResponseParser
from appliance.model.errors import ApplianceError, ProfileError, StoreError
from appliance.model.gateway import Key, Routed, State
from appliance.model.operators import OperatorToken
from appliance.model.patch_report import missing
from appliance.model.profile import Endpoint
from appliance.routing import url_paths
from appliance.routing.form_body import parse_form
from appliance.routing.json_body import LONG_BYTES, compile_changes
from appliance.routing.json_scanner import BodyError
from appliance.routing.model_names import ModelDirectory
from appliance.routing.origin_policy import OriginPolicy
from appliance.speed.bench_rows import Part, RequestRow, ResponseObserver
from appliance.speed.canaries import parse_canaries
from appliance.speed.canary_verdict import Expectation, judge_answer, read_answer
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.json_schema import parse_schema
from appliance.speed.measurement import ObservedStream
from appliance.speed.text_pattern import PatternError, TextPattern
from appliance.status.log_excerpt import excerpt
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.inference_keys import KeyDesk
from appliance.supervisor.token_check import TokenCheck
from appliance.system.applied import manifest
from appliance.system.credential_files import KEY_FILE, StoredKey, StoredToken, read_keys
from appliance.system.front_client import FrontResponse
from appliance.system.gpus import amd
from appliance.system.model_files.headers import read_gguf, read_safetensors
from appliance.system.model_files.locate import HeaderBudget, HeaderError
from appliance.system.profile_files.loading import parse_profile
from appliance.wire.control_requests import (
    CONTROL,
    AddKeyRequest,
    RemoveKeyRequest,
)
from appliance.wire.conversation import parse_request
from appliance.wire.gateway import decode_answer, decode_command
from appliance.wire.health_socket import HEALTH
from appliance.wire.lane import decode_lane_command, decode_lane_event
from appliance.wire.run_request import BadRequest, Request
from appliance.wire.status_socket import STATUS
from tests.fakes.body_parsing import parse_json
from tests.growth.cost import Call

FILLERS: Final[Mapping[str, bytes]] = {
    "blanks": b" ",
    "tabs": b"\t",
    "letters": b"a",
    "digits": b"1",
    "dots": b".",
    "dashes": b"-",
    "quotes": b'"',
    "apostrophes": b"'",
    "backslashes": b"\\",
    "escaped quotes": b'\\"',
    "brackets": b"[",
    "braces": b"{",
    "empty lists": b"[],",
    "commas": b",",
    "colons": b":",
    "semicolons": b";",
    "equals": b"a=",
    "slashes": b"/",
    "parents": b"../",
    "percents": b"%",
    "escapes": b"%25",
    "words": b"a ",
    "line ends": b"\r\n",
    "newlines": b"\n",
    "high bytes": b"\xc3\xa9",
    "nothing": b"\0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One parser."""

    parse: Callable[[bytes], object]
    """Has to take whatever comes; what a caller expects of it is no error here."""
    around: Sequence[tuple[bytes, bytes]]
    """Text before and after the part that grows."""
    most: int
    """Bytes, the most that it is ever given, or as many as tell."""
    more: Mapping[str, bytes] | None = None
    """Further things to repeat, that mean something to this parser."""

    def cases(self) -> Iterator[tuple[str, Callable[[int], Call]]]:
        """Every input by a name: makes, of a size, a call that parses it."""
        for number, (before, behind) in enumerate(self.around):
            for name, filler in {**FILLERS, **(self.more or {})}.items():
                yield f"{name} in {number}", self._maker(before, filler, behind)

    def _maker(self, before: bytes, filler: bytes, behind: bytes) -> Callable[[int], Call]:
        def make(size: int) -> Call:
            data = before + filler * (size // len(filler)) + behind
            return lambda: self.parse(data)

        return make


_KIND: Final = "multipart/form-data; boundary=b0"
_NAMED: Final = b'--b0\r\nContent-Disposition: form-data; name="a"'
_CHANGES: Final = compile_changes(
    model="m", set_={"a": 1, "b.c": 2}, strip=("chat_template_kwargs.enable_thinking", "x")
)


def _form(data: bytes) -> None:
    with contextlib.suppress(BodyError):
        parse_form(_KIND, data).apply(_CHANGES)


def _media_type(data: bytes) -> None:
    with contextlib.suppress(BodyError):
        parse_form(data.decode("latin-1"), b"--b0--")


def _json(data: bytes) -> None:
    with contextlib.suppress(BodyError):
        parse_json(data).apply(_CHANGES)


def _any_body(data: bytes) -> None:
    head = request_head.parse_request_head(b"POST /x HTTP/1.1\r\nHost: a\r\n\r\n", 100)
    assert isinstance(head, RequestHead)
    with contextlib.suppress(BodyError):
        if len(data) > LONG_BYTES:
            deque(request_body.parse_body_in_steps(head, data), maxlen=0)
        else:
            request_body.parse_body(head, data)


def _events(data: bytes) -> None:
    stream = ObservedStream(sent_s=0.0)
    for event in EventStreamParser().feed(data):
        stream.take(event, 1.0)


def _events_in_pieces(data: bytes) -> None:
    parser = EventStreamParser()
    for byte in data:
        parser.feed(bytes((byte,)))


_BENCHED: Final = RequestRow(
    profile="a",
    part=Part.ANSWERS,
    run=1,
    concurrency=1,
    prompt="lru-cache",
    sent_s=0.0,
    ended_s=0.0,
)


def _bench_response(data: bytes) -> None:
    async def receive() -> None:
        observer = ResponseObserver(_BENCHED, keep_text=True)
        response = FrontResponse(observer.feed)
        response.data_received(data)
        response.connection_lost(None)
        observer.row(sent_s=0.0, ended_s=1.0, fault=response.fault)

    asyncio.run(receive())


_EXPECTED: Final = Expectation(
    contains=("ab",),
    matches=TextPattern(r"((a|a)+)+$|\d{2,9}x|[^a]{3}\s*\."),
    json_schema=parse_schema({"type": "array", "items": {"type": ["array", "null", "object"]}}),
)


def _canary_answer(data: bytes) -> None:
    for streamed in (False, True):
        judge_answer(read_answer(data, streamed=streamed), _EXPECTED)


def _searched(data: bytes) -> None:
    assert _EXPECTED.matches is not None
    _EXPECTED.matches.is_in(data.decode("latin-1"))


def _expression(data: bytes) -> None:
    with contextlib.suppress(PatternError):
        TextPattern(data.decode("latin-1"))


def _head(data: bytes) -> None:
    request_head.parse_request_head(data, 100)
    known = CachedHead.of(data)
    if known is not None:
        known.match(data)


def _path(data: bytes) -> None:
    with contextlib.suppress(url_paths.PathError):
        url_paths.classify_path("GET", data.decode("latin-1"))


def _chunks(data: bytes) -> None:
    ChunkedDecoder().feed(data)


def _chunks_in_pieces(data: bytes) -> None:
    chunks = ChunkedDecoder()
    for at in range(len(data)):
        chunks.feed(data[at : at + 1])
        chunks.pieces.clear()


def _answer(data: bytes) -> None:
    reading = ResponseParser()
    reading.feed(data)
    reading.take_body()


def _answer_in_pieces(data: bytes) -> None:
    reading = ResponseParser()
    for at in range(len(data)):
        reading.feed(data[at : at + 1])
        reading.take_body()


def _tail(data: bytes) -> None:
    tail = data[-8192:]
    response.is_stream(tail)
    response.parse_output_tokens(tail)
    response.parse_usage(tail)


_DIRECTORY: Final = ModelDirectory(
    {
        "m": Routed(
            name="m",
            served=("*-*-*-*-*-*x", "a*a*a*a*a*b", "*a?a*a?a*a?b", "**/**/**x"),
            engine_name="m",
            endpoint=Endpoint(port=9000),
        )
    }
)


def _model(data: bytes) -> None:
    _DIRECTORY.resolve(data.decode("latin-1"), State())


def _visitor(data: bytes) -> None:
    visitors = OriginPolicy.of(("a",), ("http://a",))
    visitors.refusal(data, None, None)
    visitors.refusal(None, data, None)
    visitors.refusal(None, b"http://" + data, None)


def _supervisor_line(data: bytes) -> None:
    """A line of the supervisor as the gateway reads it, and the other way round."""
    for decode in (decode_command, decode_answer):
        with contextlib.suppress(ValueError):
            decode(data)


def _lane_line(data: bytes) -> None:
    """A line of the health agent as the gateway reads it, and the other way round."""
    for decode in (decode_lane_command, decode_lane_event):
        with contextlib.suppress(ValueError):
            decode(data)


class _Keys:
    """A few keys, of which none is ever changed."""

    def all(self) -> Sequence[StoredKey]:
        return [
            StoredKey(id=f"{n}", key=Key(name="aaaa" * n), sha256="", created_unix_s=0.0)
            for n in range(1, 9)
        ]

    def add(self, key: Key, now_unix_s: float) -> tuple[str, StoredKey]:
        return "", StoredKey(id="", key=key, sha256="", created_unix_s=now_unix_s)

    def remove(self, name: str) -> Sequence[StoredKey]:  # noqa: ARG002
        return ()


def _key_name(data: bytes) -> None:
    """An argument of the control socket that is compared with every key's name."""
    desk = KeyDesk(_Keys(), lambda _names: None, lambda: 0.0)
    name = data.decode("latin-1")
    for request in (AddKeyRequest(name), RemoveKeyRequest(name)):
        with contextlib.suppress(ApplianceError):
            desk.answer(request, Requester(uid=1000, pid=7, user="ana"))


class _Tokens:
    """A few tokens, of which none is ever changed."""

    def all(self) -> Sequence[StoredToken]:
        return [
            StoredToken(
                id=f"{n:08x}",
                token=OperatorToken(name="aaaa" * n, uid=1000, user="ana"),
                sha256="",
                created_unix_s=0.0,
                created_by="ana",
            )
            for n in range(1, 9)
        ]

    def note_use(self, identity: str, now_unix_s: float) -> None:
        raise StoreError(f"{identity} at {now_unix_s}")


def _token(data: bytes) -> None:
    """A presented token, of any bytes."""
    check = TokenCheck(
        _Tokens(), lambda _uid: None, now_unix_s=lambda: 0.0, monotonic_s=lambda: 0.0
    )
    with contextlib.suppress(ApplianceError):
        check.operator(data.decode("latin-1"))


def _control_line(data: bytes) -> None:
    """A line as the sockets of supervisor and health agent read it."""

    async def read() -> None:
        reader = asyncio.StreamReader(limit=1 << 20)
        for at in range(0, len(data), 4096):
            reader.feed_data(data[at : at + 4096])
        reader.feed_data(b"\n")
        line = await reader.readline()
        with contextlib.suppress(ApplianceError):
            document = parse_request(line)
            for table in (CONTROL, HEALTH, STATUS):
                with contextlib.suppress(ApplianceError):
                    table.common_protocol(document)
                with contextlib.suppress(ApplianceError):
                    table.verb_of(document)
                for verb in table.verbs:
                    with contextlib.suppress(ApplianceError):
                        table.decode_request(verb, document)

    asyncio.run(read())


def _control_event(data: bytes) -> None:
    """A line as the clients of these sockets read it."""
    for table in (CONTROL, HEALTH, STATUS):
        with contextlib.suppress(ValueError):
            table.decode_event(data)


def _run_request(data: bytes) -> None:
    text = data.decode("latin-1")
    with contextlib.suppress(BadRequest):
        Request({"argv": [text], "env": {text: text}, "cwd": "/", "gpus": "all", "umask": 0})


def _file_parser(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    def parse(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, name)
            path.write_bytes(data)
            with contextlib.suppress(HeaderError, StoreError):
                read(path)

    return parse


def _safetensors(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def _profile(data: bytes) -> None:
    with contextlib.suppress(ProfileError):
        parse_profile("m", data)


def _manifest(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        manifest.decode_manifest(data)


def _configuration(data: bytes) -> None:
    with contextlib.suppress(StoreError):
        manifest.decode_configuration(data)


def _amd(data: bytes) -> None:
    """A card, its node of amdkfd, and a descriptor, of which all say the same."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        card = root / "sys/class/drm/card0/device"
        node = root / "sys/class/kfd/kfd/topology/nodes/1"
        info, links = root / "proc/1/fdinfo", root / "proc/1/fd"
        for folder in (card, node, info, links):
            folder.mkdir(parents=True)
        (card / "uevent").write_bytes(b"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n" + data)
        (links / "3").symlink_to("/dev/dri/renderD128")
        for file in (card / "mem_info_vram_total", card / "mem_info_vram_used", info / "3"):
            file.write_bytes(b"drm-pdev:\t0000:03:00.0\n" + data)
        (node / "gpu_id").write_bytes(data)
        (node / "properties").write_bytes(data)
        amd.Driver(amd.cards(str(root)), str(root)).read(with_processes=True)


def _log(data: bytes) -> None:
    excerpt(data.decode("latin-1").split("\n"))


def _patch_output(data: bytes) -> None:
    missing(data.decode("latin-1").split("\n"), ("P4", "a", "[x]"))


_REQUEST: Final = b"POST /v1/x HTTP/1.1\r\nHost: a\r\n"
_LINES: Final = {
    "headers": b"X: a\r\n",
    "lists": b"Connection: a,b\r\n",
    "folds": b"X: a\r\n b\r\n",
}
_DOCUMENT: Final = b'{"format":1,"version":"1","profiles":'

_EVENTS: Final = {"events": b"data: {}\n\n", "fields": b"data:\n", "comments": b":\n"}
SUBJECTS: Final[Mapping[str, Subject]] = {
    "head of a form's part": Subject(
        parse=_form,
        around=[
            (_NAMED + b"\r\nX:a", b"a\r\n\r\nw\r\n--b0--"),
            (_NAMED + b"\r\nX", b"a\r\n\r\nw\r\n--b0--"),
            (_NAMED + b"; ", b"a\r\n\r\nw\r\n--b0--"),
            (_NAMED[:-2], b'"\r\n\r\nw\r\n--b0--'),
            (_NAMED + b"\r\nContent-Type: text/plain; charset=", b"\r\n\r\nw\r\n--b0--"),
        ],
        most=8 << 10,
        more={"parameters": b';a="b"', "headers": b"X: a\r\n"},
    ),
    "form": Subject(
        parse=_form,
        around=[
            (_NAMED + b"\r\n\r\n", b"\r\n--b0--"),
            (_NAMED + b"\r\n\r\n", b""),
            (b"", b"--b0--"),
        ],
        most=1 << 20,
        more={
            "parts": _NAMED + b"\r\n\r\nw\r\n",
            "almost boundaries": b"\r\n--b",
            "padded parts": _NAMED + b"\r\nX:a" + b" " * 4000 + b"a\r\n\r\nw\r\n",
        },
    ),
    "Content-Type": Subject(
        parse=_media_type,
        around=[
            (b"multipart/form-data; ", b"x"),
            (b'multipart/form-data; boundary="', b'"'),
            (b"multipart/form-data; boundary=", b""),
            (b"", b"; boundary=b0"),
        ],
        most=32 << 10,
        more={"parameters": b';a="b"'},
    ),
    "JSON": Subject(
        parse=_json,
        around=[
            (b"", b""),
            (b'{"a":"', b'"}'),
            (b'{"a":', b"}"),
            (b'{"a":[', b"1]}"),
            (b"{", b'"model":"a"}'),
            (b'{"model":"a"', b"}"),
            (b'{"b":{"', b'":1}}'),
            (b'{"chat_template_kwargs":{', b'"a":1}}'),
        ],
        most=1 << 20,
        more={
            "members": b'"a":1,',
            "stripped members": b'"x":1,',
            "escapes of names": b"\\u0061",
            "numbers": b"1,",
            "objects": b'{"a":{}},',
            "words": b"null,",
        },
    ),
    "beginning of a body": Subject(
        parse=_any_body,
        around=[(b"", b"{"), (b"\xff\xfe", b"{\0")],
        most=1 << 20,
        more={"wide blanks": b" \0", "wider blanks": b"\0\0\0 ", "marks": b"\xef\xbb\xbf"},
    ),
    "request head": Subject(
        parse=_head,
        around=[
            (_REQUEST + b"X: ", b"\r\n\r\n"),
            (_REQUEST + b"X", b": a\r\n\r\n"),
            (_REQUEST + b"Content-Type: a", b"\r\n\r\n"),
            (_REQUEST + b"Content-Type: multipart/form-data; charset=", b"\r\n\r\n"),
            (_REQUEST + b"Connection: ", b"\r\nContent-Length: 1\r\n\r\n"),
            (_REQUEST + b"Content-Length: ", b"\r\n\r\n"),
            (_REQUEST, b"\r\n"),
            (b"GET / HTTP/1.1\r\nHost: ", b"\r\n\r\n"),
            (b"GET /", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://", b"/ HTTP/1.1\r\nHost: a\r\n\r\n"),
            (b"GET http://a/", b" HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        most=32 << 10,
        more=_LINES,
    ),
    "path": Subject(
        parse=_path,
        around=[(b"/", b""), (b"/v1/", b"/slots")],
        most=32 << 10,
        more={"escaped parents": b"%2e%2e/", "twice escaped": b"%252e/", "long escapes": b"%2525"},
    ),
    "chunks": Subject(
        parse=_chunks,
        around=[
            (b"1;", b"\r\na\r\n0\r\n\r\n"),
            (b"1", b"\r\na\r\n0\r\n\r\n"),
            (b"ffff\r\n", b""),
            (b"0\r\n", b"\r\n"),
            (b"", b"0\r\n\r\n"),
        ],
        most=1 << 20,
        more={**_LINES, "small chunks": b"1\r\na\r\n", "extensions": b";a=b"},
    ),
    "chunks, byte by byte": Subject(
        parse=_chunks_in_pieces,
        around=[(b"fffff\r\n", b""), (b"", b"")],
        most=8 << 10,
        more={"small chunks": b"1\r\na\r\n"},
    ),
    "answer": Subject(
        parse=_answer,
        around=[
            (b"HTTP/1.1 200 ", b"\r\nContent-Length: 1\r\n\r\na"),
            (b"HTTP/1.1 200 OK\r\nX: ", b"\r\nContent-Length: 1\r\n\r\na"),
            (b"HTTP/1.1 200 OK\r\nConnection: ", b"\r\nContent-Length: 1\r\n\r\na"),
            (b"HTTP/1.1 200 OK\r\n", b"\r\n"),
            (b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"\r\n"),
        ],
        most=256 << 10,
        more={
            **_LINES,
            "small chunks": b"1\r\na\r\n",
            "interim answers": b"HTTP/1.1 100 Continue\r\n\r\n",
        },
    ),
    "answer, byte by byte": Subject(
        parse=_answer_in_pieces,
        around=[
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n", b""),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b""),
        ],
        most=8 << 10,
    ),
    "tail of an answer": Subject(
        parse=_tail,
        around=[(b"", b""), (b'"completion_tokens"', b"1"), (b'{"predicted_per_second":1', b"}")],
        most=8 << 10,
        more={"keys": b'"completion_tokens"', "lines": b"\ndata:"},
    ),
    "events of a probe": Subject(
        parse=_events,
        around=[
            (b"", b""),
            (b"data: ", b"\n\n"),
            (b'data: {"choices":[{"delta":{"content":"', b'"}}]}\n\n'),
        ],
        most=1 << 20,
        more=_EVENTS,
    ),
    "events of a probe, byte by byte": Subject(
        parse=_events_in_pieces, around=[(b"", b""), (b"data: ", b"")], most=8 << 10, more=_EVENTS
    ),
    "response to a bench": Subject(
        parse=_bench_response,
        around=[
            (b"", b""),
            (b"HTTP/1.1 200 OK\r\nX: ", b"\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\n\r\ndata: ", b"\n\n"),
            (b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices":[{"text":"', b'"}]}\n\n'),
            (b'HTTP/1.1 500 X\r\n\r\n{"error": {"code": "', b'"}}'),
        ],
        most=1 << 20,
        more=_EVENTS,
    ),
    "answer to a canary": Subject(
        parse=_canary_answer,
        around=[
            (b"", b""),
            (b'data: {"choices":[{"delta":{"content":"', b'"}}]}\n\n'),
            (b'{"choices":[{"message":{"content":"', b'"}}]}'),
            (b'{"choices":[{"message":{"content":"[[', b'],"}}]}'),
        ],
        most=64 << 10,
        more=_EVENTS,
    ),
    "text that a canary searches": Subject(
        parse=_searched, around=[(b"", b""), (b"a", b"b"), (b"1", b".")], most=8 << 10
    ),
    "expression of a canary": Subject(
        parse=_expression,
        around=[(b"", b""), (b"[", b"]"), (b"(", b")"), (b"a{", b"}")],
        most=512,
        more={"groups": b"(a)", "copies": b"{9}", "empty": b"(){9}", "choices": b"a|"},
    ),
    "canaries of a file": Subject(
        parse=lambda data: parse_canaries(data.decode("latin-1")),
        around=[
            (b"", b""),
            (b'{"name":"a","request":{"messages":[{}]},"expect":{"contains":["', b'"]}}'),
            (b'{"name":"a","request":{"messages":[{}]},"expect":{"json_schema":', b"}}"),
        ],
        most=64 << 10,
    ),
    "model's name": Subject(
        parse=_model,
        around=[(b"", b""), (b"a", b"c"), (b"-", b"a")],
        most=256,
        more={"pairs": b"a-", "triples": b"aba"},
    ),
    "Host and Origin": Subject(
        parse=_visitor,
        around=[(b"", b""), (b"[", b"]"), (b"http://", b":1")],
        most=32 << 10,
        more={"groups": b"1:", "parts": b"1."},
    ),
    "line of a control socket": Subject(
        parse=_control_line,
        around=[(b"", b""), (b'{"verb":"', b'"}'), (b'{"args":[', b"1]}")],
        most=1 << 18,
        more={"numbers": b"1,", "members": b'"a":1,'},
    ),
    "event on the control socket": Subject(
        parse=_control_event,
        around=[
            (b"", b""),
            (b'{"event":"', b'"}'),
            (b'{"event":"result","operation":1,"log":[', b"1]}"),
            (b'{"event":"result","operation":1,"phases_ms":{"', b'":1}}'),
        ],
        most=1 << 18,
        more={"numbers": b"1,", "members": b'"a":1,'},
    ),
    "line on the gateway's socket": Subject(
        parse=_supervisor_line,
        around=[
            (b'{"verb":"route","state":{"standings":{"', b'":"serving"}}}'),
            (b'{"verb":"hold","names":[', b'"a"]}'),
            (b'{"verb":"', b'"}'),
            (b'{"ok":true,"stats":{"', b'":1}}'),
        ],
        most=1 << 18,
        more={"names": b'"a",'},
    ),
    "lines of the lane": Subject(
        parse=_lane_line,
        around=[
            (b'{"verb":"probe","profile":"m","timeout_s":1,"path":"/","body":{"', b'":1}}'),
            (b'{"verb":"lease","exclusive":true,"names":["', b'"]}'),
            (b'{"event":"data","at_s":1,"text":"', b'"}'),
        ],
        most=64 << 10,
        more={"names": b'm","', "members": b'a":1,"', "escapes": b"\\u0041"},
    ),
    "token": Subject(
        parse=_token, around=[(b"", b""), (b"apt_", b""), (b"apt_00000001_", b"")], most=1 << 16
    ),
    "name of a key": Subject(
        parse=_key_name, around=[(b"", b""), (b"aaaa", b"a")], most=1 << 16, more={"pairs": b"ab"}
    ),
    "request of run": Subject(parse=_run_request, around=[(b"", b""), (b"/", b"")], most=1 << 18),
    "GGUF": Subject(
        parse=_file_parser("m.gguf", lambda path: read_gguf(path, HeaderBudget())),
        around=[
            (b"GGUF\3\0\0\0" + b"\0" * 8 + (1 << 16).to_bytes(8, "little"), b""),
            (b"GGUF\3\0\0\0" + (1 << 18).to_bytes(8, "little") + b"\0" * 8, b""),
        ],
        most=1 << 20,
        more={
            "keys": b"\1\0\0\0\0\0\0\0a\4\0\0\0\1\0\0\0",
            "empty lists": b"\1\0\0\0\0\0\0\0a\x09\0\0\0\4\0\0\0" + b"\0" * 8,
            "tensors": b"\1\0\0\0\0\0\0\0a" + b"\0" * 16,
        },
    ),
    "safetensors": Subject(
        parse=lambda data: _file_parser(
            "m.safetensors", lambda path: read_safetensors(path, HeaderBudget())
        )(_safetensors(data)),
        around=[(b"", b""), (b'{"', b'":1}'), (b'{"a":{"data_offsets":[', b"1]}}")],
        most=1 << 20,
        more={"members": b'"a":1,', "numbers": b"1,"},
    ),
    "profile": Subject(
        parse=_profile,
        around=[
            (b"", b""),
            (b'engine = "command"\ndescription = "', b'"\nport = 9000\n'),
            (b'description = """', b'"""\n'),
            (b"served = [", b"]\n"),
            (b"a", b" = 1\n"),
            (b"[", b"]\n"),
        ],
        most=16 << 10,
        more={
            "keys": b"a = 1\n",
            "tables": b"[a]\n",
            "lists of tables": b"[[a]]\n",
            "comments": b"#\n",
            "long strings": b'"""',
            "inline tables": b"{a=1},",
            "texts": b'"a",',
        },
    ),
    "file of keys": Subject(
        parse=_file_parser(KEY_FILE, read_keys),
        around=[(b"", b""), (b'{"format":1,"keys":[', b"]}"), (b'{"format":1,"', b'":[]}')],
        most=512 << 10,
        more={"objects": b'{"id":"a"},'},
    ),
    "manifest": Subject(
        parse=_manifest,
        around=[(b"", b""), (_DOCUMENT + b'{"', b'":{}}}'), (_DOCUMENT + b"[", b"]}")],
        most=1 << 20,
        more={"objects": b'{"name":"a"},'},
    ),
    "gateway.json": Subject(
        parse=_configuration,
        around=[
            (b"", b""),
            (b'{"format":1,"addresses":[', b'"a"]}'),
            (b'{"format":1,"', b'":1}'),
        ],
        most=512 << 10,
        more={"texts": b'"a",', "members": b'"port":1,'},
    ),
    "files of the amdgpu driver": Subject(
        parse=_amd,
        around=[(b"drm-memory-vram: ", b" KiB\n")],
        most=16 << 10,
        more={"pairs": b"a: 1\n", "properties": b"location_id 768\n", "settings": b"a=b\n"},
    ),
    "log of an engine": Subject(
        parse=_log,
        around=[(b"", b""), (b"ERROR", b"x"), (b"(A", b"")],
        most=64 << 10,
        more={
            "processes": b"(A pid=1) ",
            "half processes": b"(A",
            "numbers": b"1.1.",
            "colours": b"\x1b[1;",
            "margins": b"| + ",
            "levels": b"ERROR ",
            "tracebacks": b"Traceback (most recent call last):\n",
            "errors": b"Error",
        },
    ),
    "output of a patch": Subject(
        parse=_patch_output,
        around=[(b"", b""), (b"P4 ", b" applied")],
        most=64 << 10,
        more={"names": b"P4 ", "words": b"skipped ", "verdicts": b"not applied "},
    ),
}
