"""HTML of the page, for a box in each of the states that the pins know, and with hostile texts in it."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from appliance.model.status import RecordedOperation
from appliance.web.box_documents import BoxDocuments
from appliance.web.page.view import (
    STATIC_TYPES,
    FocusDocuments,
    OperatorView,
    PageDocuments,
    PageRenderer,
    page_view,
    static_file,
)
from appliance.wire.typed_json import from_json
from tests.fakes.html_page import HtmlPage, read_html
from tests.fakes.supervisor_documents import as_status
from tests.pins import status_documents
from tests.pins.status_box import STATES

RENDERER: Final = PageRenderer()
OPERATOR: Final = OperatorView(
    name="ana (token phone)", csrf="c0ffee", login_path="/login", logout_path="/logout"
)
NOW: Final = 1_800_000_000.0
ALERT: Final = {
    "alert": "A17",
    "subject": "profile:aeon",
    "rule": "slow",
    "severity": "warning",
    "fact": "slow: 27 tok/s (was 41)",
    "details": ["4 probes"],
    "likely": "11 of 49 layers on CPU",
    "command": "appliance status aeon",
    "since_unix_s": NOW - 2100,
    "sent_unix_s": NOW - 2000,
}
SPEEDS: Final[Mapping[str, Any]] = {
    "profiles": {
        "aeon": {
            "series": [
                {
                    "series": "decode",
                    "phase": "regressed",
                    "rate": 27.1,
                    "baseline": 41.0,
                    "band": 1.2,
                    "change": -0.34,
                    "since_unix_s": NOW - 8000,
                    "cause_text": "11 of 49 layers on CPU",
                    "rates": [41.0, 27.1],
                }
            ],
            "last_probe_unix_s": NOW - 300,
            "last_valid_unix_s": NOW - 300,
        }
    },
    "trouble": [],
    "alerts": {
        "alerts": [ALERT],
        "left_off": 2,
        "silences": [
            {
                "subject": {"kind": "watch", "name": "nas"},
                "until_unix_s": NOW + 600,
                "by": "ana",
                "reason": "its disks are replaced",
            }
        ],
        "delivery": {"enabled": True, "targets": 1, "heartbeat_set": True, "heartbeat_s": 14.0},
    },
}
HISTORY: Final = {
    "rows": {"decode": [[NOW - 7200, 4, 40.0, 41.0, 42.0], [NOW - 3600, 4, 26.0, 27.0, 28.0]]},
    "baseline": {
        "profile": "aeon",
        "series": [{"series": "decode", "phase": "watching", "baseline": 41.0, "band": 1.2}],
    },
    "events": [
        {
            "id": 1,
            "unix_s": NOW - 5000,
            "profile": "aeon",
            "kind": "regression",
            "series": "decode",
            "text": "slow",
        }
    ],
}

OPERATIONS: Final = (
    {
        "kind": "switch",
        "target": ["aeon"],
        "profiles": ["aeon", "genesis"],
        "outcome": "done",
        "message": "aeon is serving on :8023",
        "began_unix_s": NOW - 4060,
        "finished_unix_s": NOW - 4000,
    },
)


REQUESTS: Final = {
    "requests": [
        {
            "id": "3f9a1c-12",
            "profile": "aeon",
            "api": "chat",
            "key": "laptop",
            "state": "answering",
            "streams": True,
            "age_s": 75.0,
            "waited_s": 0.1,
            "pieces": 41,
            "bytes": 9000,
            "tokens": None,
        },
        {
            "id": "3f9a1c-13",
            "profile": "genesis",
            "api": "anthropic",
            "key": None,
            "state": "held",
            "streams": False,
            "age_s": 3.0,
            "waited_s": None,
            "pieces": 0,
            "bytes": 0,
            "tokens": None,
        },
    ],
    "left_off": 4,
}


def documents(
    status: Mapping[str, Any] | None,
    *,
    speeds: Mapping[str, Any] | None = SPEEDS,
    age_s: float = 0.3,
    focus: str = "aeon",
    log: tuple[str, ...] | None = ("\x1b[31mred\x1b[0m",),
    operations: Any = OPERATIONS,
    requests: Any = REQUESTS,
    states: Any = None,
) -> PageDocuments:
    return PageDocuments(
        box=BoxDocuments(
            unix_s=NOW,
            status=None if status is None else as_status(status),
            status_age_s=age_s,
            speeds=speeds,
            speeds_age_s=0.5,
        ),
        focus=FocusDocuments(
            name=focus, since_unix_s=NOW - 7 * 86400, history=HISTORY, probes=(), log=log
        ),
        operations=tuple(from_json(RecordedOperation, one) for one in operations),
        requests=requests,
        states=states,
    )


def render(found: PageDocuments, operator: OperatorView = OPERATOR) -> HtmlPage:
    """The page, of which the rules that hold for every page are checked."""
    page = read_html(RENDERER.page(page_view(found), operator))
    assert page.faults == []
    for element in page.elements:
        for name, value in element.attributes.items():
            assert name != "style"
            assert not name.startswith("on")
            if name in {"src", "href", "action"}:
                assert value is not None
                assert value.startswith(("/", "?", "#"))
                assert not value.startswith("//")
    assert [e.attributes.get("src") for e in page.named("script")] == ["/static/page.js"]
    assert page.named("style") == []
    assert all(e.attributes["method"] == "post" for e in page.named("form"))
    fields = [e for e in page.named("input") if e.attributes.get("name") == "csrf"]
    assert len(fields) == len(page.named("form"))
    return page


@pytest.mark.parametrize("name", sorted(STATES))
def test_every_state_of_a_box_is_a_page(name: str) -> None:
    """The page is well formed, has no script, style or address of elsewhere in it, and names each profile."""
    status, _ = status_documents.observe(STATES[name])
    page = render(documents(status))
    shown = [e.attributes["data-profile"] for e in page.elements if "data-profile" in e.attributes]
    assert sorted(map(str, shown)) == sorted(row["name"] for row in status["profiles"])
    running = status["operation"] is not None
    assert bool(page.of_class("steps")) == running
    if running:
        [step] = page.of_class("step-now")
        assert step.attributes["data-phase"] == status["operation"]["phase"]
    known = {
        row["name"]
        for row in status["profiles"]
        if row["name"] in {"aeon", "genesis"} or row["state"] == "serving"
    }
    assert len(page.of_class("states")) == len(known)
    assert len(page.of_class("marker-switch")) == len(page.of_class("marker-change")) == 1
    for sentence in status["verdict"]["why"]:
        assert " ".join(sentence.split()) in " ".join(page.text.split())


def test_without_a_supervisor_the_page_says_what_to_do() -> None:
    """A box whose supervisor never answered has a page too."""
    page = render(PageDocuments(box=BoxDocuments(unix_s=NOW)))
    assert "sudo systemctl start appliance-supervisor" in page.text
    assert "Not known: the health agent does not answer." in page.text


def test_a_reader_who_has_not_signed_in_sees_no_forms() -> None:
    """Commands to type stand in their place, and a link to sign in."""
    status, _ = status_documents.observe(STATES["serving"])
    page = render(documents(status, log=None), OperatorView(login_path="/login"))
    assert page.named("form") == []
    assert "appliance switch genesis" in page.text
    assert "/login" in [e.attributes.get("href") for e in page.named("a")]


def test_each_request_has_a_row_and_an_operator_a_button() -> None:
    """Model, kind, state, age, what has come and the key's name; without an operator there is no button."""
    status, _ = status_documents.observe(STATES["serving"])
    page = render(documents(status))
    assert [
        e.attributes["data-request"] for e in page.elements if "data-request" in e.attributes
    ] == [
        "3f9a1c-12",
        "3f9a1c-13",
    ]
    text = " ".join(page.text.split())
    for words in (
        "aeonchatanswering75 s41 pieceslaptop",
        "genesismessagesheld3 snone",
        "4 more",
    ):
        assert words in text, text
    buttons = [e.attributes.get("aria-label") or "" for e in page.named("button")]
    assert "Cancel request 3f9a1c-12 to aeon" in buttons
    reader = render(documents(status, log=None), OperatorView(login_path="/login"))
    assert not [e for e in reader.named("button") if "Cancel request" in str(e.attributes)]
    unknown = render(documents(status, requests=None))
    assert "Not known: the gateway does not answer." in unknown.text


HOSTILE: Final = "</pre></section><script>alert(1)</script><img src=x onerror=alert(1)>\"' style=x onclick='{{7*7}}"
KEPT: Final = frozenset({"state", "phase", "kind", "series", "severity", "subject", "outcome"})
"""Fields whose values are words of ours."""


def poisoned(value: Any, key: str = "") -> Any:
    """The value with a hostile text in each of its texts."""
    match value:
        case str() if key not in KEPT:
            return value + HOSTILE
        case Mapping():
            return {k: poisoned(v, k) for k, v in value.items()}
        case list() | tuple():
            return [poisoned(v, key) for v in value]
        case _:
            return value


@pytest.mark.parametrize(
    "name", ["GPUs", "switching, load", "failed, oom-kill", "rolled back", "serving"]
)
def test_hostile_texts_stay_texts(name: str) -> None:
    """Names, log lines, alerts and sentences of another's making add no element and no attribute."""
    status, _ = status_documents.observe(STATES[name])
    plain = render(documents(status))
    found = documents(
        poisoned(status),
        speeds=poisoned(SPEEDS),
        focus="aeon" + HOSTILE,
        operations=tuple(poisoned(OPERATIONS)),
        requests=poisoned(REQUESTS),
        states={"profiles": {"aeon": [[NOW - 9000, "serving" + HOSTILE]]}, "until_unix_s": NOW},
        log=(HOSTILE, f"\x1b[31m{HOSTILE}\x1b]8;;http://evil.example\x07link\x1b]8;;\x07"),
    )
    page = render(found)
    assert {e.name for e in page.elements} <= {e.name for e in plain.elements} | {
        "p",
        "code",
        "span",
    }
    assert {n for e in page.elements for n in e.attributes} <= {
        n for e in plain.elements for n in e.attributes
    } | {"aria-current", "data-phase"}
    assert "alert(1)" in page.text
    assert "{{7*7}}" in page.text
    assert "evil.example" not in page.text


def test_an_old_document_is_told_as_old() -> None:
    """A supervisor that has gone leaves its last document, with its age beside it."""
    status, _ = status_documents.observe(STATES["serving"])
    [lost] = [
        e
        for e in render(documents(status, age_s=40.0)).elements
        if e.attributes.get("id") == "lost"
    ]
    assert "hidden" not in lost.attributes
    assert "disconnected 40 s" in render(documents(status, age_s=40.0)).text
    assert "disconnected" not in render(documents(status)).text


def test_parts_stand_in_the_order_of_their_importance() -> None:
    """A phone shows them in this order, and the keyboard goes through them in it."""
    status, _ = status_documents.observe(STATES["GPUs"])
    parts = [
        e.attributes["data-part"]
        for e in render(documents(status)).elements
        if "data-part" in e.attributes
    ]
    assert parts == [
        *(
            "head",
            "now",
            "alerts",
            "profiles",
            "memory",
            "states",
            "speed",
            "requests",
            "log",
            "foot",
        )
    ]


def test_an_alert_has_its_cause_its_command_and_what_ends_it() -> None:
    """The cause, the command to type, and for an operator a form to ack and one to silence."""
    status, _ = status_documents.observe(STATES["serving"])
    page = render(documents(status))
    for words in ("Likely: 11 of 49 layers on CPU", "Do: appliance status aeon"):
        assert words in page.text
    alerts = [e.attributes for e in page.named("input") if e.attributes.get("name") == "alert"]
    assert [one["value"] for one in alerts] == ["A17", "A17"]
    actions = [e.attributes["action"] for e in page.named("form")]
    assert {"/do/ack", "/do/silence"} <= set(actions)


def test_the_footer_tells_whether_anybody_would_be_told() -> None:
    """Age of the last sign of life, the outbox, and when the last probe was."""
    status, _ = status_documents.observe(STATES["serving"])
    text = render(documents(status)).text
    for words in ("heartbeat ok 14 s ago", "outbox empty", "last probe 5 min ago"):
        assert words in text


def test_a_chart_has_the_band_around_its_baseline() -> None:
    """Probes are read against what is usual."""
    status, _ = status_documents.observe(STATES["serving"])
    page = render(documents(status))
    assert len(page.of_class("band")) == len(page.of_class("level")) == 1


def test_an_operation_is_followed_without_a_script() -> None:
    """The browser asks again every 5 s; with a load whose usual length is known a bar says how far it is."""
    status, _ = status_documents.observe(STATES["switching, load"])
    operation = status["operation"]
    assert operation is not None
    page = render(documents({**status, "operation": {**operation, "progress": 0.62}}))
    assert [
        e.attributes["content"]
        for e in page.named("meta")
        if e.attributes.get("http-equiv") == "refresh"
    ] == ["5"]
    assert [e.attributes["value"] for e in page.named("progress")] == ["62"]
    still, _ = status_documents.observe(STATES["serving"])
    metas = render(documents(still)).named("meta")
    assert not [e for e in metas if e.attributes.get("http-equiv") == "refresh"]


def test_the_page_can_be_installed() -> None:
    """The page names its manifest, whose icon is a file of the page; it opens in a window of its own."""
    status, _ = status_documents.observe(STATES["serving"])
    links = {
        e.attributes.get("rel"): e.attributes.get("href")
        for e in render(documents(status)).named("link")
    }
    assert links["manifest"] == "/static/manifest.webmanifest"
    found = static_file("manifest.webmanifest")
    assert found is not None
    manifest = json.loads(found[0])
    assert (manifest["start_url"], manifest["scope"], manifest["display"]) == (
        "/",
        "/",
        "standalone",
    )
    assert manifest["name"]
    assert manifest["icons"]
    for icon in manifest["icons"]:
        assert static_file(icon["src"].removeprefix("/static/")) is not None


def test_the_page_suits_light_and_dark_and_the_keyboard() -> None:
    """Colours follow the system; a link leads past the head, to an element that takes the focus."""
    status, _ = status_documents.observe(STATES["serving"])
    page = render(documents(status))
    [skip] = page.of_class("skip")
    [main] = page.named("main")
    assert skip.attributes["href"] == f"#{main.attributes['id']}"
    assert main.attributes["tabindex"] == "-1"
    found = static_file("page.css")
    assert found is not None
    assert "@media (prefers-color-scheme: dark)" in found[0].decode()


@pytest.mark.parametrize("name", sorted(STATIC_TYPES))
def test_files_of_the_page_ask_for_nothing_elsewhere(name: str) -> None:
    """No font, image or script comes from another server."""
    found = static_file(name)
    assert found is not None
    text = found[0].decode().replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "@import" not in text


def test_no_other_file_is_served() -> None:
    """A path that leads elsewhere is a name that is not known."""
    for name in ("../page_view.py", "page.html", "", "PAGE.CSS"):
        assert static_file(name) is None
