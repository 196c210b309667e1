"""Forms of the page: who may use them, and what each asks for."""

import re
from dataclasses import dataclass

import httpx
import pytest

from appliance.model.errors import BusyError
from appliance.model.record import Record
from appliance.model.words import Mark
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.application import make_application
from appliance.web.box_documents import BoxDocuments
from appliance.web.page.routes import LASTS_S, MOST_SESSIONS, Sessions
from appliance.web.page.view import FocusDocuments
from appliance.wire.alert_requests import AckRequest, SilenceRequest
from appliance.wire.control_requests import (
    CancelRequest,
    CutRequest,
    MarkRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.wire.conversation import ResultEvent
from tests.fakes.fixed_box import FixedBox, FixedFocus, browse
from tests.fakes.operator_actions import TOKEN, FakeBoxActions
from tests.fakes.supervisor_documents import as_status
from tests.pins import status_documents
from tests.pins.status_box import STATES

STATUS, _ = status_documents.observe(STATES["serving"])


@dataclass
class Visit:
    """A browser at the page."""

    web: httpx.AsyncClient
    desk: FakeBoxActions
    focus: FixedFocus

    async def sign_in(self, token: str = TOKEN) -> str:
        """Sign in; returns the field of the forms."""
        answer = await self.web.post("/login", data={"token": token})
        assert answer.status_code == 303
        page = (await self.web.get("/")).text
        found = re.search(r'name="csrf" value="([^"]+)"', page)
        assert found
        return found[1]


def visit() -> Visit:
    box = FixedBox(BoxDocuments(unix_s=1e9, status=as_status(STATUS), status_age_s=0.1))
    focus = FixedFocus(FocusDocuments(name="", since_unix_s=0.0, log=("loaded <b>",)))
    desk = FakeBoxActions()
    return Visit(browse(make_application(box, focus, desk, SameOriginPolicy.of([]))), desk, focus)


def request_of(visitor: Visit) -> Record:
    """The one request that was made, with the token that signed in."""
    [(token, request)] = visitor.desk.asked
    assert token == TOKEN
    return request


@pytest.mark.parametrize(
    ("path", "fields", "request_"),
    [
        ("profile", {"profile": "aeon", "action": "switch"}, SwitchRequest("aeon")),
        ("profile", {"profile": "aeon", "action": "start"}, StartRequest(("aeon",))),
        ("profile", {"profile": "aeon", "action": "stop"}, StopRequest(("aeon",))),
        ("mark", {"profile": "aeon", "mark": "retired"}, MarkRequest("aeon", Mark.RETIRED)),
        ("cancel", {"operation": "18"}, CancelRequest(18)),
        ("cut", {"request": "3f9a1c-12"}, CutRequest("3f9a1c-12")),
        ("ack", {"alert": "A17"}, AckRequest("A17")),
        ("silence", {"alert": "A17"}, SilenceRequest("A17", reason="from the page")),
    ],
)
async def test_a_form_asks_for_one_thing(
    path: str, fields: dict[str, str], request_: Record
) -> None:
    """With the session's own field, a form is a request with the operator's token."""
    one = visit()
    csrf = await one.sign_in()
    answer = await one.web.post(f"/do/{path}", data={**fields, "csrf": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert request_of(one) == request_


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("profile", {"profile": "aeon", "action": "remove"}),
        ("profile", {"action": "stop"}),  # would stop all
        ("profile", {"action": "start"}),
        ("cancel", {"operation": "x"}),
        ("cancel", {"operation": "\u0663"}),
        ("cancel", {"operation": "9" * 5000}),
        ("cancel", {}),
        ("cut", {}),
        ("cut", {"request": "../x"}),
        ("other", {}),
    ],
)
async def test_a_faulty_form_asks_for_nothing(path: str, fields: dict[str, str]) -> None:
    """The page says so once."""
    one = visit()
    csrf = await one.sign_in()
    assert (await one.web.post(f"/do/{path}", data={**fields, "csrf": csrf})).status_code == 303
    assert one.desk.asked == []
    assert 'class="notice"' in (await one.web.get("/")).text
    assert 'class="notice"' not in (await one.web.get("/")).text


async def test_a_request_that_is_over_is_told_as_such() -> None:
    """A request may end between the look and the click."""
    one = visit()
    csrf = await one.sign_in()
    one.desk.answer = ResultEvent(1, "", "request 3f9a1c-12 is over", {"cancelled": False})
    await one.web.post("/do/cut", data={"request": "3f9a1c-12", "csrf": csrf})
    assert "request 3f9a1c-12 is over" in (await one.web.get("/")).text


async def test_a_form_without_the_field_of_the_session_is_refused() -> None:
    """Neither none, nor another session's, nor one with odd letters does."""
    one = visit()
    first = await one.sign_in()
    await one.sign_in()
    for csrf in ("", first, "\u00e9"):
        fields = {"profile": "aeon", "action": "switch", "csrf": csrf}
        assert (await one.web.post("/do/profile", data=fields)).status_code == 403
    assert one.desk.asked == []


async def test_who_has_not_signed_in_changes_nothing_and_sees_no_log() -> None:
    """A form of theirs leads to the form to sign in."""
    one = visit()
    answer = await one.web.post("/do/profile", data={"profile": "aeon", "action": "switch"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    page = (await one.web.get("/")).text
    assert "<form" not in page
    assert "loaded" not in page
    assert one.focus.looks == [("aeon", False)]
    await one.sign_in()
    assert "loaded &lt;b&gt;" in (await one.web.get("/")).text


async def test_a_wrong_token_signs_nobody_in() -> None:
    """The form comes back with the reason, without the token, and without a cookie."""
    one = visit()
    answer = await one.web.post("/login", data={"token": "<wrong-token>"})
    assert answer.status_code == 403
    assert "the token is not known" in answer.text
    assert "wrong-token" not in answer.text
    assert "set-cookie" not in answer.headers


async def test_the_cookie_is_for_this_page_alone() -> None:
    """No script reads it, no other site sends it, and the token is not in it."""
    one = visit()
    answer = await one.web.post("/login", data={"token": TOKEN})
    cookie = answer.headers["set-cookie"]
    for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
        assert part in cookie
    assert TOKEN not in cookie


async def test_signing_out_ends_the_session() -> None:
    """The cookie that a browser kept is worth nothing afterwards."""
    one = visit()
    csrf = await one.sign_in()
    kept = dict(one.web.cookies)
    assert (await one.web.post("/logout", data={"csrf": "x"})).status_code == 403
    assert (await one.web.post("/logout", data={"csrf": csrf})).status_code == 303
    one.web.cookies.update(kept)
    assert "<form" not in (await one.web.get("/")).text


async def test_a_refusal_is_told_on_the_page() -> None:
    """The sentence of the supervisor stands there, escaped."""
    one = visit()
    csrf = await one.sign_in()
    one.desk.refusal = BusyError("switch to <i>aeon</i> is running")
    await one.web.post("/do/profile", data={"profile": "mini", "action": "switch", "csrf": csrf})
    assert "switch to &lt;i&gt;aeon&lt;/i&gt; is running" in (await one.web.get("/")).text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"token=%ff", "application/x-www-form-urlencoded", 422),
        ("token=\u00e9".encode(), "application/x-www-form-urlencoded", 422),
        (b"a=1&" * 5000, "application/x-www-form-urlencoded", 422),
        (b"{}", "application/json", 415),
        (b"", "", 415),
    ],
)
async def test_what_is_no_form_is_refused(body: bytes, kind: str, status: int) -> None:
    """Bodies are read within bounds, and none makes a failure of ours."""
    one = visit()
    answer = await one.web.post("/login", content=body, headers={"content-type": kind})
    assert answer.status_code == status


def test_sessions_end_and_are_few() -> None:
    """A session ends after its time; one too many ends the oldest; its text holds no secret."""
    sessions = Sessions()
    first = sessions.begin(TOKEN, "ana", 0.0)
    found = sessions.find(first, LASTS_S - 1)
    assert found is not None
    assert TOKEN not in repr(found)
    assert sessions.find(first, LASTS_S) is None
    ids = [sessions.begin(TOKEN, "ana", 0.0) for _ in range(MOST_SESSIONS + 1)]
    assert sessions.find(ids[0], 1.0) is None
    assert all(sessions.find(one, 1.0) for one in ids[1:])
    assert sessions.find("x" * 10_000, 1.0) is None
