"""HTTP client of an engine, on loopback or a unix socket: one real answer, its load, its settings.

Answers are parsed in a thread: a mebibyte takes up to a quarter of a second.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

from appliance.engines.shared.self_report import ReportPage
from appliance.model.errors import BackendError
from appliance.model.gateway import EngineLoad, EngineMetrics
from appliance.model.json_reader import decode_json
from appliance.model.profile import Applied, WarmUp, requested_name, text_request
from appliance.model.running_facts import SelfDescription
from appliance.model.wording import short
from appliance.status.engine_load import kv_cache_page, load_in
from appliance.switch.verification import (
    page_description,
    report_pages,
    together,
)
from appliance.system.http_client import HttpClient, HttpError, exchange, open_client

_PROMPT: Final = "Say hello."
_MAX_TOKENS: Final = 4
_MAX_ANSWER_BYTES: Final = 1 << 20
_LOAD_TIMEOUT_S: Final = 2.0
"""Time for an engine to report its load, between two steps of its model; a slower engine is
busy."""
T = TypeVar("T")


class HttpBackend:
    """Port `Backend`, over HTTP."""

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        """Send one real request. Returns the text to show.

        Raises:
            BackendError: No answer within `timeout_s`, or one without a result.
        """
        if applied.warm_up is WarmUp.NONE:
            return "not asked for"
        began = time.monotonic()
        try:
            async with (
                asyncio.timeout(timeout_s),
                open_client(socket_path=applied.endpoint.socket) as client,
            ):
                await _ask(client, applied)
        except TimeoutError as error:
            raise BackendError(f"no answer within {timeout_s:.0f} s") from error
        except (HttpError, ValueError) as error:
            raise BackendError(f"invalid answer: {short(str(error))}") from error
        return f"answered in {time.monotonic() - began:.2f} s"

    async def load(self, applied: Applied) -> EngineLoad | None:
        """Return the load that the engine reports; None: none, or not within two seconds."""
        return await _read(_load, applied)

    async def metrics(self, applied: Applied) -> EngineMetrics | None:
        """Return the engine's page of metrics; None: none, or not within two seconds."""
        return await _read(_metrics, applied)

    async def describe(self, applied: Applied) -> SelfDescription:
        """Return what is on the engine's pages about itself; a page that does not come in time is a fault."""
        reports = list[SelfDescription]()
        for page in report_pages(applied.engine):
            report = await _read(partial(_description, page), applied)
            missing = SelfDescription(faults=(f"{page.path} is not answered",))
            reports.append(missing if report is None else report)
        return together(reports)


async def _read(
    read: Callable[[HttpClient, Applied], Awaitable[T | None]], applied: Applied
) -> T | None:
    """Read figures of an engine; None: there are none, or not in time."""
    try:
        async with (
            asyncio.timeout(_LOAD_TIMEOUT_S),
            open_client(socket_path=applied.endpoint.socket) as client,
        ):
            return await read(client, applied)
    except (TimeoutError, HttpError, ValueError):
        return None


async def _ask(client: HttpClient, applied: Applied) -> None:
    """Send one request. Raises `HttpError`, `ValueError` or `BackendError`."""
    path, body = _request(applied)
    answer = await exchange(
        client,
        "POST",
        _url(applied, path),
        most_bytes=_MAX_ANSWER_BYTES,
        headers={"Content-Type": "application/json"},
        content=json.dumps(body).encode(),
    )
    if answer.status != HTTPStatus.OK:
        # The body may repeat the request; the status is enough, and the log has the rest.
        raise BackendError(f"{path} answered {answer.status} {_reason(answer.status)}".rstrip())
    if not _is_answer(applied.warm_up, await asyncio.to_thread(decode_json, answer.body)):
        raise BackendError(f"{path} answered 200 without a result")


def _reason(status: int) -> str:
    """Return the standard's words for a status, not the engine's own; empty: it has none."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


async def _load(client: HttpClient, applied: Applied) -> EngineLoad | None:
    """Read the load. Raises `HttpError`."""
    metrics = await _metrics(client, applied)
    if metrics is None:
        return None
    load = await asyncio.to_thread(load_in, metrics.text)
    page = kv_cache_page(applied.engine)
    if load.kv_cache is None and page is not None:
        slots = await _page(client, applied, page.path)
        if slots is not None:
            share = await asyncio.to_thread(page.read, slots[0], applied.shares_cache)
            load = replace(load, kv_cache=share)
    return None if load == EngineLoad() else load


async def _description(
    page: ReportPage, client: HttpClient, applied: Applied
) -> SelfDescription | None:
    """Read one page; None: there is no such page. Raises `HttpError`."""
    found = await _page(client, applied, page.path)
    return None if found is None else await asyncio.to_thread(page_description, page, found[0])


async def _metrics(client: HttpClient, applied: Applied) -> EngineMetrics | None:
    page = await _page(client, applied, "/metrics")
    if page is None:
        return None
    text, is_whole = page
    if is_whole:
        return EngineMetrics(text=text)
    return EngineMetrics(text=text[: text.rfind("\n") + 1], truncated=True)


async def _page(client: HttpClient, applied: Applied, path: str) -> tuple[str, bool] | None:
    """Return a page, and whether that is all of it; None: there is no such page."""
    answer = await exchange(client, "GET", _url(applied, path), most_bytes=_MAX_ANSWER_BYTES)
    if answer.status != HTTPStatus.OK:
        return None
    return answer.body.decode(errors="replace"), answer.is_whole


def _url(applied: Applied, path: str) -> str:
    if applied.endpoint.socket is not None:
        return f"http://localhost{path}"
    return f"http://127.0.0.1:{applied.endpoint.port}{path}"


def _request(applied: Applied) -> tuple[str, dict[str, Any]]:
    request = text_request(applied, _PROMPT)
    if request is None:
        return "/v1/embeddings", {"model": requested_name(applied), "input": _PROMPT}
    path, body = request
    return path, {**body, "max_tokens": _MAX_TOKENS}


def _is_answer(kind: WarmUp, answer: object) -> bool:
    key = "data" if kind is WarmUp.EMBEDDING else "choices"
    return isinstance(answer, dict) and bool(answer.get(key))
