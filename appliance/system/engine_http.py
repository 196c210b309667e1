"""HTTP client of an engine, on loopback or a unix socket: one real answer, its load, its settings.

The standard library's client in a thread: one request an operation does not justify a larger
client in a daemon that runs for months.
"""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from appliance.engines.shared.self_report import ReportPage
from appliance.model.errors import BackendError
from appliance.model.gateway import EngineLoad, EngineMetrics
from appliance.model.json_reader import decode_json
from appliance.model.profile import Applied, Endpoint, WarmUp, requested_name, text_request
from appliance.model.running_facts import SelfDescription
from appliance.model.wording import short
from appliance.status.engine_load import kv_cache_page, load_in
from appliance.switch.verification import (
    page_description,
    report_pages,
    together,
)
from appliance.system.response_body import read_body

_PROMPT: Final = "Say hello."
_MAX_TOKENS: Final = 4
_MAX_ANSWER_BYTES: Final = 1 << 20
_LOAD_TIMEOUT_S: Final = 2.0
"""Time for an engine to report its load, between two steps of its model; a slower engine is
busy."""
T = TypeVar("T")


class _UnixConnection(http.client.HTTPConnection):
    """Connection for HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class HttpBackend:
    """Port `Backend`, over HTTP."""

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        """Ask for one real answer. Returns the text to show.

        Raises:
            BackendError: No answer within `timeout_s`, or not the one that was asked for.
        """
        if applied.warm_up is WarmUp.NONE:
            return "not asked for"
        connection = _connection(applied.endpoint, timeout_s)
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.to_thread(_ask, connection, applied)
        except TimeoutError as error:
            raise BackendError(f"no answer within {timeout_s:.0f} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BackendError(f"invalid answer: {_fault_in(error)}") from error
        finally:
            _abort(connection)
        return f"answered in {time.monotonic() - began:.2f} s"

    async def load(self, applied: Applied) -> EngineLoad | None:
        """Return the load that the engine reports; None: none, or not within two seconds."""
        return await _read(_load, applied)

    async def metrics(self, applied: Applied) -> EngineMetrics | None:
        """Return the engine's page of metrics; None: none, or not within two seconds."""
        return await _read(_metrics, applied)

    async def describe(self, applied: Applied) -> SelfDescription:
        """Return what the engine's pages tell about it; what it does not answer in time is a fault."""
        told = list[SelfDescription]()
        for page in report_pages(applied.engine):
            found = await _read(partial(_description, page), applied)
            silent = SelfDescription(faults=(f"{page.path} is not answered",))
            told.append(silent if found is None else found)
        return together(told)


async def _read(
    read: Callable[[http.client.HTTPConnection, Applied], T | None], applied: Applied
) -> T | None:
    """Read figures of an engine in a thread; None: there are none, or not in time."""
    connection = _connection(applied.endpoint, _LOAD_TIMEOUT_S)
    try:
        async with asyncio.timeout(_LOAD_TIMEOUT_S):
            return await asyncio.to_thread(read, connection, applied)
    except (TimeoutError, OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        _abort(connection)


def _connection(endpoint: Endpoint, timeout_s: float) -> http.client.HTTPConnection:
    if endpoint.socket is not None:
        return _UnixConnection(endpoint.socket, timeout_s)
    return http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=timeout_s)


def _ask(connection: http.client.HTTPConnection, applied: Applied) -> None:
    """Send one request, in a thread. Raises OSError, HTTPException, ValueError or BackendError."""
    path, body = _request(applied)
    connection.request(
        "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    answer = read_body(response, _MAX_ANSWER_BYTES)
    if response.status != http.client.OK:
        # The body may repeat the request; the status is enough, and the log has the rest.
        reason = http.client.responses.get(response.status, "")  # not the engine's own words
        raise BackendError(f"{path} answered {response.status} {reason}".rstrip())
    if not _is_answer(applied.warm_up, decode_json(answer)):
        raise BackendError(f"{path} answered 200 without a result")


def _load(connection: http.client.HTTPConnection, applied: Applied) -> EngineLoad | None:
    """Read the load, in a thread. Raises OSError or HTTPException."""
    metrics = _metrics(connection, applied)
    if metrics is None:
        return None
    load = load_in(metrics.text)
    page = kv_cache_page(applied.engine)
    if load.kv_cache is None and page is not None:
        slots = _page(connection, page.path)
        share = None if slots is None else page.read(slots[0], applied.shares_cache)
        load = replace(load, kv_cache=share)
    return None if load == EngineLoad() else load


def _description(
    page: ReportPage, connection: http.client.HTTPConnection, _applied: Applied
) -> SelfDescription | None:
    """Read one page, in a thread; None: there is no such page. Raises OSError or HTTPException."""
    found = _page(connection, page.path)
    return None if found is None else page_description(page, found[0])


def _metrics(connection: http.client.HTTPConnection, _applied: Applied) -> EngineMetrics | None:
    page = _page(connection, "/metrics")
    if page is None:
        return None
    text, is_whole = page
    if is_whole:
        return EngineMetrics(text=text)
    return EngineMetrics(text=text[: text.rfind("\n") + 1], truncated=True)


def _page(connection: http.client.HTTPConnection, path: str) -> tuple[str, bool] | None:
    """Return a page, and whether that is all of it; None: there is no such page."""
    connection.request("GET", path)
    response = connection.getresponse()
    content = read_body(response, _MAX_ANSWER_BYTES + 1)
    is_whole = len(content) <= _MAX_ANSWER_BYTES
    text = content[:_MAX_ANSWER_BYTES].decode(errors="replace")
    if not is_whole:
        connection.close()  # the rest of a long answer is not read; the next request connects anew
    return (text, is_whole) if response.status == http.client.OK else None


def _request(applied: Applied) -> tuple[str, dict[str, Any]]:
    request = text_request(applied, _PROMPT)
    if request is None:
        return "/v1/embeddings", {"model": requested_name(applied), "input": _PROMPT}
    path, body = request
    return path, {**body, "max_tokens": _MAX_TOKENS}


def _fault_in(error: Exception) -> str:
    """Return a phrase that quotes nothing of the engine, which HTTP's exceptions do."""
    if isinstance(error, http.client.HTTPException) and not isinstance(error, OSError):
        return f"it is not as HTTP says ({type(error).__name__})"
    return short(str(error))


def _is_answer(kind: WarmUp, answer: object) -> bool:
    key = "data" if kind is WarmUp.EMBEDDING else "choices"
    return isinstance(answer, dict) and bool(answer.get(key))


def _abort(connection: http.client.HTTPConnection) -> None:
    """Make a thread that still waits on this connection end now."""
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # not connected, or closed already
        finally:
            connection.close()
