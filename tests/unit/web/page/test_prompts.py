"""Box to try a prompt: who may, what a script and a browser without one get, and what is kept."""

import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import httpx
import pytest

from appliance.model.errors import ApplianceError, BackendError, BusyError
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.actions import MOST_PROMPT
from appliance.web.application import make_application
from appliance.web.box_documents import BoxDocuments
from tests.fakes.fixed_box import FixedBox, FixedFocus, browse
from tests.fakes.html_page import read_html
from tests.fakes.operator_actions import TOKEN, FakeBoxActions
from tests.fakes.supervisor_documents import as_status
from tests.pins import status_documents
from tests.pins.status_box import STATES

STATUS, _ = status_documents.observe(STATES["serving"])
PROMPT = "tell me <b>a secret</b>"
TEXT = {"accept": "text/plain"}


@dataclass(slots=True)
class FixedTrials:
    """Trials with a given answer; keeps what was asked."""

    pieces: tuple[str, ...] = ("Once <i>", "upon")
    fault: ApplianceError | None = None
    """Error after the pieces; None: the answer is whole."""
    asked: list[tuple[str, str]] = field(default_factory=list)

    async def answer(self, profile: str, prompt: str) -> AsyncGenerator[str, None]:
        """Yield the pieces."""
        self.asked.append((profile, prompt))
        for piece in self.pieces:
            yield piece
        if self.fault is not None:
            raise self.fault


class Desk:
    """A browser at the page, which has signed in."""

    def __init__(self, trials: FixedTrials | None) -> None:
        self.actions = FakeBoxActions()
        self.trials = trials
        box = FixedBox(BoxDocuments(unix_s=1e9, status=as_status(STATUS), status_age_s=0.1))
        application = make_application(
            box, FixedFocus(), self.actions, SameOriginPolicy.of([]), trials=trials
        )
        self.web = browse(application)

    async def sign_in(self) -> str:
        """Sign in; returns the field of the forms."""
        await self.web.post("/login", data={"token": TOKEN})
        found = re.search(r'name="csrf" value="([^"]+)"', (await self.web.get("/")).text)
        assert found
        return found[1]

    async def ask(self, csrf: str, prompt: str = PROMPT, **headers: str) -> httpx.Response:
        """Send the form."""
        fields = {"csrf": csrf, "profile": "aeon", "prompt": prompt}
        return await self.web.post("/ask", data=fields, headers=headers)


async def test_a_script_gets_the_pieces_as_text() -> None:
    """The part that has come stays where the rest fails, with the reason."""
    trials = FixedTrials()
    desk = Desk(trials)
    csrf = await desk.sign_in()
    answer = await desk.ask(csrf, **TEXT)
    assert (answer.status_code, answer.text) == (200, "Once <i>upon")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert trials.asked == [("aeon", PROMPT)]
    trials.fault = BackendError("the answer broke off")
    assert (await desk.ask(csrf, **TEXT)).text == "Once <i>upon\n[the answer broke off]"
    trials.pieces = ()
    assert (await desk.ask(csrf, **TEXT)).text == "\n[the answer broke off]"


async def test_without_the_script_the_answer_is_a_page() -> None:
    """The answer is whole and escaped, at the address of the form, which holds nothing."""
    trials = FixedTrials()
    desk = Desk(trials)
    csrf = await desk.sign_in()
    answer = await desk.ask(csrf)
    page = read_html(answer.text)
    assert (answer.status_code, page.faults) == (200, [])
    assert "Once <i>upon" in page.text
    assert "secret" not in answer.text
    assert str(answer.url).endswith("/ask")
    assert answer.headers["cache-control"] == "no-store"
    trials.fault = BackendError("the answer broke off")
    assert "the answer broke off" in (await desk.ask(csrf)).text


async def test_only_an_operator_asks() -> None:
    """Neither without a session, nor without its field, nor with a token that was removed since."""
    trials = FixedTrials()
    desk = Desk(trials)
    assert (await desk.ask("")).headers["location"] == "/login"
    assert (await desk.ask("", **TEXT)).status_code == 403
    assert "data-ask" not in (await desk.web.get("/")).text
    csrf = await desk.sign_in()
    assert "data-ask" in (await desk.web.get("/")).text
    assert (await desk.ask("x")).status_code == 403
    desk.actions.operators.clear()
    removed = await desk.ask(csrf, **TEXT)
    assert (removed.status_code, "not known" in removed.text) == (409, True)
    assert trials.asked == []


@pytest.mark.parametrize("prompt", ["", "  ", "x" * (MOST_PROMPT + 1)])
async def test_an_empty_or_long_prompt_is_refused(prompt: str) -> None:
    """No model is asked."""
    trials = FixedTrials()
    desk = Desk(trials)
    csrf = await desk.sign_in()
    assert (await desk.ask(csrf, prompt, **TEXT)).status_code == 409
    assert trials.asked == []


async def test_a_prompt_is_in_no_log_and_no_later_page(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is the answer; also where it fails."""
    caplog.set_level(logging.DEBUG)
    desk = Desk(FixedTrials(fault=BusyError("busy")))
    csrf = await desk.sign_in()
    await desk.ask(csrf)
    await desk.ask(csrf, **TEXT)
    text = (await desk.web.get("/")).text + caplog.text
    assert "secret" not in text
    assert "Once" not in text


async def test_a_page_without_trials_has_no_box() -> None:
    """The address of the form is not there."""
    desk = Desk(None)
    csrf = await desk.sign_in()
    assert "data-ask" not in (await desk.web.get("/")).text
    assert (await desk.ask(csrf)).status_code == 404
    assert desk.actions.asked == []
