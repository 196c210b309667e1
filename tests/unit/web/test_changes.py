"""Changes through the API: who may ask, what is sent to the daemons, and what is answered."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.model.errors import BusyError, UnreachableError
from appliance.model.record import Record
from appliance.model.words import Mark
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.application import OPENAPI_PATH, make_application
from appliance.wire.alert_requests import (
    AckRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
)
from appliance.wire.control_events import EndedEvent
from appliance.wire.control_requests import (
    CancelRequest,
    CutRequest,
    MarkRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from tests.fakes.fixed_box import FixedBox, FixedFocus, browse
from tests.fakes.operator_actions import TOKEN, FakeBoxActions, ProbeBegun

HOW_TO = Path(__file__).parents[3] / "docs/how-to/act-with-a-token.md"
BEARER = {"authorization": f"Bearer {TOKEN}"}
CHANGES: Mapping[str, tuple[str, str, Mapping[str, object] | None, Record, int]] = {
    "switch": ("POST", "/switch", {"profile": "genesis"}, SwitchRequest("genesis"), 202),
    "cancel": ("DELETE", "/operations/18", None, CancelRequest(18), 202),
    "start": ("POST", "/profiles/genesis/start", None, StartRequest(("genesis",)), 202),
    "stop": ("POST", "/profiles/genesis/stop", None, StopRequest(("genesis",)), 202),
    "mark": (
        "PUT",
        "/profiles/genesis/mark",
        {"mark": "standby"},
        MarkRequest("genesis", Mark.STANDBY),
        200,
    ),
    "cut": ("DELETE", "/requests/3f9a1c-12", None, CutRequest("3f9a1c-12"), 200),
    "probe": ("POST", "/profiles/genesis/probe", None, ProbeBegun("genesis"), 202),
    "ack": ("POST", "/alerts/A17/ack", None, AckRequest("A17"), 200),
    "silence": (
        "POST",
        "/silences",
        {"name": "genesis", "for_s": 60, "reason": "work"},
        SilenceRequest("genesis", 60.0, "work"),
        200,
    ),
    "unsilence": ("DELETE", "/silences/genesis", None, UnsilenceRequest("genesis"), 200),
    "test": ("POST", "/alerts/test", {"target": "phone"}, TestAlertRequest("phone"), 200),
}
ENDED = EndedEvent(
    operation=18,
    kind="switch",
    target=("genesis",),
    outcome="done",
    cause=None,
    exit=0,
    message="genesis is serving",
    serving=("genesis",),
    committed=("genesis",),
    restored=(),
    log=(),
    phases_ms={},
    ms=1.0,
)
every = pytest.mark.parametrize("change", CHANGES)


def client(actions: FakeBoxActions) -> httpx.AsyncClient:
    policy = SameOriginPolicy.of(["garage"])
    return browse(make_application(FixedBox(), FixedFocus(), actions, policy))


async def ask(
    actions: FakeBoxActions, change: str, headers: Mapping[str, str] = BEARER
) -> httpx.Response:
    """Return the response to one of `CHANGES`."""
    method, path, body, _, _ = CHANGES[change]
    if change in {"mark", "cut"}:
        actions.answer = ResultEvent(0, "done", "it is so now", {})
    async with client(actions) as web:
        return await web.request(method, f"/api/v1{path}", json=body, headers=dict(headers))


def problem(response: httpx.Response) -> Mapping[str, Any]:
    """The problem of an error."""
    assert response.headers["content-type"] == "application/problem+json"
    body: Mapping[str, Any] = response.json()
    return body


@every
async def test_an_operators_change_is_passed_on(change: str) -> None:
    """Each change is one request to a daemon, with the operator's token."""
    actions = FakeBoxActions()
    response = await ask(actions, change)
    assert (response.status_code, actions.requests) == (CHANGES[change][4], [CHANGES[change][3]])


@every
@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({}, False),
        ({"authorization": ""}, False),
        ({"authorization": "Bearer"}, False),
        ({"authorization": f"Basic {TOKEN}"}, False),
        ({"authorization": f"Bearer {TOKEN}x"}, True),
        ({"authorization": "Bearer " + "x" * 5000}, True),
        ({"cookie": f"token={TOKEN}"}, False),
        ({"cookie": f"appliance-session={TOKEN}"}, False),
        ({"x-api-key": TOKEN}, False),
    ],
    ids=range(9),
)
async def test_nobody_changes_anything(
    change: str, headers: Mapping[str, str], *, error: bool
) -> None:
    """Without a token the answer names the scheme; a wrong one is told apart from none."""
    actions = FakeBoxActions()
    response = await ask(actions, change, headers)
    assert (response.status_code, actions.requests) == (401, [])
    challenge = response.headers["www-authenticate"]
    assert challenge.startswith('Bearer realm="appliance"')
    assert ("invalid_token" in challenge) is error
    assert "appliance token add" in problem(response)["hint"]


async def test_a_token_in_an_address_is_no_token() -> None:
    """Addresses are kept in histories and logs."""
    actions = FakeBoxActions()
    async with client(actions) as web:
        for name in ("token", "access_token", "operator_token"):
            path = f"/api/v1/switch?{name}={TOKEN}"
            response = await web.post(path, json={"profile": "genesis"})
            assert (response.status_code, actions.requests) == (401, [])


@every
async def test_another_pages_change_is_refused(change: str) -> None:
    """A token does not help a page of another origin."""
    actions = FakeBoxActions()
    response = await ask(actions, change, {**BEARER, "origin": "http://evil.example"})
    assert (response.status_code, actions.requests) == (403, [])


async def test_guesses_are_slowed_down() -> None:
    """The supervisor refuses to look at an id for a while; the client is told when to come back."""
    actions = FakeBoxActions(checking=BusyError("too many wrong tokens with this id"))
    response = await ask(actions, "switch")
    assert (response.status_code, response.headers["retry-after"]) == (429, "60")
    actions.checking = UnreachableError("supervisor not running: sudo systemctl start it")
    assert (await ask(actions, "switch")).status_code == 503


async def test_a_switch_tells_where_to_look() -> None:
    """With its number, and the same for one that is over already."""
    actions = FakeBoxActions()
    for answer in (actions.answer, ENDED):
        actions.answer = answer
        response = await ask(actions, "switch")
        assert response.status_code == 202
        assert response.headers["location"] == "/api/v1/operations/18"
        assert response.json() == {"operation": 18, "kind": "switch", "target": ["genesis"]}


async def test_a_key_is_passed_on() -> None:
    """The supervisor keeps it: this process leaves when idle."""
    actions = FakeBoxActions()
    await ask(actions, "switch", {**BEARER, "idempotency-key": "k1"})
    await ask(actions, "stop", {**BEARER, "idempotency-key": "k2"})
    assert actions.keys == ["k1", "k2"]
    response = await ask(actions, "switch", {**BEARER, "idempotency-key": "k" * 256})
    assert response.status_code == 422


async def test_a_rehearsal_changes_nothing() -> None:
    """The answer has the plan and the findings."""
    plan = {"stop": ["aeon"], "start": ["genesis"], "committed_after": ["genesis"]}
    refused = ResultEvent(1, "rehearsed", "refused", {"plan": plan, "findings": []})
    actions = FakeBoxActions(answer=refused)
    async with client(actions) as web:
        body = {"profile": "genesis", "dry_run": True}
        response = await web.post("/api/v1/switch", json=body, headers=BEARER)
    assert response.status_code == 200
    assert response.json() == {
        "refused": True,
        "message": "refused",
        "plan": plan,
        "findings": [],
        "estimates": {},
    }
    assert actions.requests == [SwitchRequest("genesis", dry_run=True)]


async def test_a_switch_to_a_set() -> None:
    """Several profiles are one request, which a supervisor that knows no sets refuses."""
    actions = FakeBoxActions(answer=ResultEvent(0, "rehearsed", "", {}))
    async with client(actions) as web:
        body = {"profiles": ["left", "right"], "dry_run": True}
        await web.post("/api/v1/switch", json=body, headers=BEARER)
    assert actions.requests == [SwitchRequest(dry_run=True, names=("left", "right"))]


async def test_a_cancel_of_what_does_not_run() -> None:
    """An operation that is over, and one that never was, cannot be cancelled."""
    actions = FakeBoxActions(answer=ResultEvent(0, "done", "operation 18 does not run", {}))
    response = await ask(actions, "cancel")
    assert (response.status_code, problem(response)["hint"]) == (409, "appliance status")


@pytest.mark.parametrize(
    ("error", "status", "hint"),
    [
        (ErrorEvent("busy", "switch to aeon is running: appliance wait"), 409, "appliance wait"),
        (ErrorEvent("unknown-profile", 'no profile "x": appliance list'), 404, "appliance list"),
        (ErrorEvent("not-found", 'no alert "A9" fires: appliance alerts'), 404, "appliance alerts"),
        (ErrorEvent("bad-request", "this key was used for another request"), 422, ""),
        (ErrorEvent("denied", "the token was removed"), 403, ""),
        (
            ErrorEvent("precondition", "genesis does not serve: appliance status"),
            409,
            "appliance status",
        ),
        (ErrorEvent("unreachable", "the supervisor does not answer"), 503, ""),
        (ErrorEvent("failed", "the disk is full"), 502, ""),
    ],
)
async def test_refusals_have_their_status(error: ErrorEvent, status: int, hint: str) -> None:
    """A refusal of the daemon keeps its sentence and its next command."""
    response = await ask(FakeBoxActions(refusal=RequestRefusedError(error)), "switch")
    assert (response.status_code, problem(response)["hint"]) == (status, hint)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        [],
        {"profile": ""},
        {"profile": "x" * 65},
        {"profile": 7},
        {"profile": "genesis", "rollback": False},
        {"profile": "genesis", "dry_run": "perhaps"},
        {"profile": "genesis", "profiles": ["aeon"]},
        {"profiles": []},
        {"profiles": [""]},
        {"profiles": ["x"] * 65},
    ],
    ids=range(12),
)
async def test_bodies_that_make_no_sense(body: object) -> None:
    """Whether values are of another type, too long or not known, nothing is asked."""
    actions = FakeBoxActions()
    async with client(actions) as web:
        response = await web.post("/api/v1/switch", json=body, headers=BEARER)
        assert (response.status_code, actions.requests) == (422, [])
        for content in (b"{nonsense", b"[" * 20_000):
            plain = await web.post("/api/v1/switch", content=content, headers=BEARER)
            assert (plain.status_code, actions.requests) == (422, [])
            assert problem(plain)["detail"].startswith("body")


async def test_nothing_is_changed_by_reading() -> None:
    """The paths of changes take no GET that would change anything."""
    actions = FakeBoxActions()
    async with client(actions) as web:
        for _, path, _, _, _ in CHANGES.values():
            await web.get(f"/api/v1{path}", headers=BEARER)
            await web.head(f"/api/v1{path}", headers=BEARER)
    assert actions.requests == []


async def test_every_status_is_documented() -> None:
    """The OpenAPI document names the scheme, and each status that the tests above have seen."""
    async with client(FakeBoxActions()) as web:
        document = (await web.get(OPENAPI_PATH)).json()
    for method, path, _, _, status in CHANGES.values():
        shapes = [
            operation
            for known, operations in document["paths"].items()
            for verb, operation in operations.items()
            if verb == method.lower() and _fits(known, f"/api/v1{path}")
        ]
        (operation,) = shapes
        assert operation["security"] == [{"operatorToken": []}]
        wanted = {str(status), "400", "401", "403", "404", "409", "422", "429", "502", "503"}
        assert wanted <= operation["responses"].keys()
        assert operation["description"]


async def test_the_how_to_has_every_change() -> None:
    """The table of the page names each request that changes something, and no other."""
    told = re.findall(r"`((?:POST|PUT|DELETE) /api/v1/\S+?)`", HOW_TO.read_text("utf-8"))
    changes = {f"{method} /api/v1{path}" for method, path, *_ in CHANGES.values()}
    assert set(told) == changes
    async with client(FakeBoxActions()) as web:
        paths = (await web.get(OPENAPI_PATH)).json()["paths"]
    acting = [verb for path, verbs in paths.items() for verb in verbs if "/act/" not in path]
    assert len([verb for verb in acting if verb != "get"]) == len(changes)


def _fits(template: str, path: str) -> bool:
    parts, given = template.split("/"), path.split("/")
    return (
        len(parts) == len(given)
        and all(a == b or a.startswith("{") for a, b in zip(parts, given, strict=True))
        and not (template.endswith("{alert}/ack") and path.endswith("test"))
    )


async def test_a_request_that_is_over_is_not_found() -> None:
    """An id of no form that the gateway makes is refused before anybody is asked."""
    actions = FakeBoxActions()
    actions.answer = ResultEvent(1, "", "request 3f9a1c-12 is over", {"cancelled": False})
    async with client(actions) as web:
        over = await web.delete("/api/v1/requests/3f9a1c-12", headers=BEARER)
        odd = await web.delete("/api/v1/requests/a%20b", headers=BEARER)
    assert (over.status_code, problem(over)["detail"]) == (404, "request 3f9a1c-12 is over")
    assert (odd.status_code, len(actions.requests)) == (422, 1)
