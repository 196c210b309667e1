"""Application of the web process: what it refuses, and what every response has."""

import json
import re
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route, Router

from appliance.model.status import StatusDocument
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.application import make_application
from appliance.web.box_documents import BoxDocuments
from appliance.web.guards import MOST_BODY, SECURITY_HEADERS
from tests.fakes.fixed_box import FixedBox, FixedFocus, browse
from tests.fakes.operator_actions import FakeBoxActions

POLICY = SameOriginPolicy.of(["Garage", "box.example.org"])
BOX = FixedBox(BoxDocuments(unix_s=1.0, status=StatusDocument(host="garage")))


def client(host: str = "127.0.0.1:8011", *, enabled: bool = True) -> httpx.AsyncClient:
    return browse(
        make_application(BOX, FixedFocus(), FakeBoxActions(), POLICY, enabled=enabled), host
    )


def problem(response: httpx.Response) -> dict[str, object]:
    """The problem of an error, complete."""
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = response.json()
    assert set(body) == {"type", "title", "status", "detail", "hint"}
    assert body["status"] == response.status_code
    return body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "[::1]:8011", "garage:8011"])
async def test_the_machines_own_names_are_answered(host: str) -> None:
    """Any port will do: it may be that of a tunnel."""
    async with client(host) as web:
        assert (await web.get("/livez")).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "192.168.1.9", "a.localhost"],
)
async def test_another_host_name_is_refused(host: str) -> None:
    """A web page whose name was made to resolve to this machine reads nothing (DNS rebinding)."""
    async with client(host) as web:
        for path in ("/livez", "/api/v1/status", "/metrics", "/", "/nowhere"):
            response = await web.get(path)
            assert response.status_code == 403
            assert "web.names" in str(problem(response)["hint"])


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:8011", "sec-fetch-site": "cross-site"},
    ],
)
async def test_another_pages_change_is_refused(headers: dict[str, str]) -> None:
    """Neither a form nor a script of another page changes anything, whatever the path."""
    async with client() as web:
        for path in ("/api/v1/status", "/nowhere"):
            response = await web.post(path, headers=headers)
            assert response.status_code == 403
            assert "origin" in str(problem(response)["detail"])


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://127.0.0.1:8011"}, {"sec-fetch-site": "same-origin"}]
)
async def test_our_own_page_and_programs_come_to_the_route(headers: dict[str, str]) -> None:
    """The path then says what it takes."""
    async with client() as web:
        response = await web.post("/api/v1/status", headers=headers)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, HEAD"
    problem(response)


def paths_with_get() -> list[str]:
    """Every path of the application that GET is for, with a text in the place of each parameter."""
    application = make_application(BOX, FixedFocus(), FakeBoxActions(), POLICY)
    return [
        re.sub(r"\{[^}]*\}", "page.css", one.path)
        for one in routes_of(application.router)
        if "GET" in (one.methods or ())
    ]


def routes_of(router: Router) -> Iterator[Route | APIRoute]:
    """Every route of a router, those of the routers that it includes too."""
    for one in router.routes:
        if isinstance(one, Route | APIRoute):
            yield one
        else:
            yield from routes_of(one.original_router)  # type: ignore[attr-defined] # FastAPI's own


@pytest.mark.parametrize("path", [*paths_with_get(), "/nowhere", "/api/v1/switch"])
@pytest.mark.parametrize("host", ["127.0.0.1:8011", "evil.example"])
async def test_head_is_answered_wherever_get_is(path: str, host: str) -> None:
    """With the same head, and without a body: a part that is added cannot forget it."""
    async with client(host) as web:
        head = await web.head(path)
        if path.endswith("/stream") and head.status_code == 200:
            # A test's client reads a response to its end, and this one has none by GET.
            assert head.headers["content-type"].startswith("text/event-stream")
            return
        get = await web.get(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers == get.headers
        assert head.status_code != 405 or path == "/api/v1/switch"


async def test_every_response_has_the_headers() -> None:
    """The pages, the refusals and the errors of the framework; none opens the box to other origins."""
    async with client() as web:
        responses = [
            await web.get("/"),
            await web.get("/api/v1/status"),
            await web.get("/nowhere"),
            await web.delete("/livez"),
            await web.get("/livez", headers={"host": "evil.example"}),
            await web.options("/api/v1/status", headers={"origin": "http://evil.example"}),
        ]
    for response in responses:
        for name, value in SECURITY_HEADERS.items():
            assert response.headers[name] == value
        assert not [name for name in response.headers if name.startswith("access-control-")]


def test_the_headers_keep_strangers_and_inline_scripts_out() -> None:
    """A script, a style or a form of nobody but this server; no page shows this one inside of it."""
    content = dict(
        part.strip().split(" ", 1)
        for part in SECURITY_HEADERS["content-security-policy"].split(";")
    )
    assert content.pop("default-src") == content.pop("frame-ancestors") == "'none'"
    assert content.pop("base-uri") == "'none'"
    assert {"script-src", "style-src", "connect-src", "form-action"} <= content.keys()
    assert set(content.values()) == {"'self'"}
    others = {name: value for name, value in SECURITY_HEADERS.items() if "content-s" not in name}
    assert others == {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }


async def test_a_request_with_two_hosts_is_refused() -> None:
    """Though both are names of this machine: which of them a proxy has looked at is not known."""
    async with client() as web:
        twice = [("host", "127.0.0.1:8011"), ("host", "localhost:8011")]
        response = await web.send(
            httpx.Request("GET", "http://localhost:8011/livez", headers=twice)
        )
    assert response.status_code == 403
    problem(response)


async def test_a_body_has_a_bound() -> None:
    """Told by its length, or counted."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * (MOST_BODY // 2)

    async with client() as web:
        told = await web.post("/api/v1/status", content=b"x" * (MOST_BODY + 1))
        counted = await web.post("/api/v1/status", content=chunks())
        fits = await web.post("/api/v1/status", content=b"x" * MOST_BODY)
    assert [told.status_code, counted.status_code, fits.status_code] == [413, 413, 405]
    problem(told)
    problem(counted)


async def test_nothing_is_answered_while_the_api_is_off() -> None:
    """The refusal names the setting."""
    async with client(enabled=False) as web:
        response = await web.get("/livez")
    assert response.status_code == 503
    assert problem(response)["hint"] == "web.enabled in appliance.toml"


async def test_a_path_that_does_not_exist_is_a_problem() -> None:
    """With the place of the list of paths, which is complete JSON."""
    async with client() as web:
        response = await web.get("/api/v1/nothing")
        assert response.status_code == 404
        document = await web.get(str(problem(response)["hint"]).removeprefix("GET "))
    assert "/api/v1/status" in json.loads(document.content)["paths"]
