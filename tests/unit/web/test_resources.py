"""Resources of the status API: what each answers with, and what each refuses."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from appliance.model.errors import ApplianceError, BusyError, StoreError, UnreachableError
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.words import Series
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.application import make_application
from appliance.web.box_documents import BoxDocuments, Document
from appliance.wire.alert_requests import ActRequest, AlertRequest, AlertsRequest, OutboxRequest
from appliance.wire.control_events import OperationsRequest
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import (
    HistoryRequest,
    MeasurementEventsRequest,
    StateRecordRequest,
)
from appliance.wire.status_socket import ClientRequestsRequest, RecordedOperationRequest
from tests.fakes.fixed_box import FixedBox, FixedFocus, browse
from tests.fakes.operator_actions import FakeBoxActions
from tests.fakes.schema_validator import closed, violations
from tests.fakes.supervisor_documents import as_status

STATUS = {
    "host": "garage",
    "committed": ["smol"],
    "hold": None,
    "operation": {"id": 7, "phase": "load"},
    "profiles": [
        {"name": "other", "state": "stopped", "mark": "standby"},
        {"name": "smol", "state": "serving", "mark": "live"},
    ],
}
SPEEDS = {
    "profiles": {"smol": {"profile": "smol", "ttft_s": 0.4}},
    "trouble": [],
    "alerts": {
        "alerts": [{"alert": "A1", "subject": "profile:smol"}, {"alert": "A2", "subject": "box"}],
        "left_off": 0,
        "silences": [],
        "delivery": {"waiting": 0},
    },
}
TOKEN = "A17.3.ack.SeCrEtOfTwentyTwoChars1"  # noqa: S105 - of no box


def refused(kind: Any, message: str) -> RequestRefusedError:
    return RequestRefusedError(ErrorEvent(kind, message))


@pytest.fixture
def box() -> FixedBox:
    return FixedBox(
        BoxDocuments(unix_s=5.0, status=as_status(STATUS), speeds=SPEEDS, gpus={"gpus": []})
    )


@pytest.fixture
async def web(box: FixedBox) -> AsyncIterator[httpx.AsyncClient]:
    async with browse(
        make_application(box, FixedFocus(), FakeBoxActions(), SameOriginPolicy.of([]))
    ) as client:
        yield client


async def test_the_status_has_the_sections_of_the_command(web: httpx.AsyncClient) -> None:
    """Speeds and alerts of the health agent stand in the supervisor's document."""
    document = (await web.get("/api/v1/status")).json()
    assert document["host"] == "garage"
    assert document["speed"]["profiles"]["smol"]["ttft_s"] == 0.4
    assert [row["alert"] for row in document["alerts"]["alerts"]] == ["A1", "A2"]


async def test_without_the_agent_the_status_says_so(web: httpx.AsyncClient, box: FixedBox) -> None:
    """The sections have the reason; the rest is as it was."""
    box.documents = replace(box.documents, speeds=None)
    document = (await web.get("/api/v1/status")).json()
    assert "appliance-health" in document["speed"]["note"]
    assert document["alerts"] is None


async def test_without_the_supervisor_there_is_a_problem(
    web: httpx.AsyncClient, box: FixedBox
) -> None:
    """Each resource of the supervisor names the command that starts it."""
    box.documents = BoxDocuments(unix_s=5.0)
    paths = ("status", "profiles", "profiles/smol", "gpus", "operations", "operations/7")
    for path in (*(f"/api/v1/{path}" for path in paths), "/readyz"):
        response = await web.get(path)
        assert (path, response.status_code) == (path, 503)
        assert response.json()["hint"] == "sudo systemctl start appliance-supervisor"


async def test_a_profile_has_its_speed_and_its_alerts(web: httpx.AsyncClient) -> None:
    """Alerts of others and of the box are left out; the list has the same rows."""
    row = (await web.get("/api/v1/profiles/smol")).json()
    assert (row["state"], row["speed"]["profile"]) == ("serving", "smol")
    assert [alert["alert"] for alert in row["alerts"]] == ["A1"]
    rows = (await web.get("/api/v1/profiles")).json()["profiles"]
    assert rows[1] == row
    assert rows[0]["speed"] is None


async def test_an_unknown_profile_is_named_with_the_nearest(web: httpx.AsyncClient) -> None:
    """The sentence is the command's."""
    response = await web.get("/api/v1/profiles/smoll")
    assert response.status_code == 404
    assert 'mean "smol"' in response.json()["detail"]


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({}, ""),
        ({"committed": ["smol", "other"]}, "other is stopped"),
        ({"committed": []}, "no profile is to serve"),
        ({"committed": ["gone"]}, "gone is not applied"),
        ({"hold": {"kept": True}}, "an operator holds the box"),
    ],
)
async def test_ready_means_that_what_should_serve_serves(
    web: httpx.AsyncClient, box: FixedBox, change: dict[str, Any], detail: str
) -> None:
    """A box that is degraded otherwise is ready."""
    box.documents = replace(box.documents, status=as_status({**STATUS, **change}))
    response = await web.get("/readyz")
    assert response.status_code == (503 if detail else 200)
    assert response.json().get("detail", "") == detail


async def test_operations_have_the_running_one(web: httpx.AsyncClient, box: FixedBox) -> None:
    """The supervisor tells it with those that are over, all in one answer; others are not there."""
    told = {"running": {"id": 7}, "operations": [{"id": 6}]}
    box.answers[OperationsRequest] = told
    assert (await web.get("/api/v1/operations?most=3")).json() == told
    box.answers[RecordedOperationRequest] = {"operation": {"id": 7, "state": "running"}}
    assert (await web.get("/api/v1/operations/7")).json()["state"] == "running"
    assert box.asked == [OperationsRequest(3), RecordedOperationRequest(7)]
    box.answers[RecordedOperationRequest] = {"operation": None}
    assert (await web.get("/api/v1/operations/8")).status_code == 404


async def test_only_the_page_is_a_persons_look(web: httpx.AsyncClient, box: FixedBox) -> None:
    """Collectors and scripts, which come by all day, do not make the supervisor ask engines for a minute."""
    for path in ("/metrics", "/api/v1/status", "/api/v1/profiles", "/api/v1/gpus", "/status.md"):
        await web.get(path)
    assert box.looks == [False] * 5
    await web.get("/")
    assert box.looks[5:] == [True]


async def test_the_gpus_are_read_for_those_who_want_them(
    web: httpx.AsyncClient, box: FixedBox
) -> None:
    """A status has the memory of the GPUs, and waits for no reading of them; their own resource does."""
    for path in ("/readyz", "/api/v1/status", "/api/v1/profiles", "/api/v1/profiles/smol"):
        await web.get(path)
    assert box.gpu_looks == 0
    await web.get("/api/v1/gpus")
    assert box.gpu_looks == 1


async def test_history_is_the_agents(web: httpx.AsyncClient, box: FixedBox) -> None:
    """Times and series are passed on; a refusal keeps its sentence."""
    answer: Document = {
        "rows": {"decode": [[1.0, 2, 3.0, 4.0, 5.0]]},
        "baseline": None,
        "events": [],
    }
    box.answers[HistoryRequest] = answer
    path = "/api/v1/history?profile=smol&since=10.5&series=decode"
    assert (await web.get(path)).json() == answer
    assert box.asked == [HistoryRequest("smol", 10.5, Series.DECODE)]
    box.answers[HistoryRequest] = refused("unknown-profile", 'no profile "x": appliance list')
    response = await web.get("/api/v1/history?profile=x")
    assert response.status_code == 404
    assert response.json()["hint"] == "appliance list"


async def test_events_of_both_kinds_since_a_time(web: httpx.AsyncClient, box: FixedBox) -> None:
    """Older ones are left out."""
    alert = AlertEvent(4, 90.0, "fired", "A1", "box", "disk", 1, "warning")
    box.agent_events = [
        MeasuredEvent(1, 50.0, "smol", "loss"),
        MeasuredEvent(2, 80.0, "smol", "recovery"),
        alert,
    ]
    told = (await web.get("/api/v1/events?since=80&most=9")).json()
    assert [row["id"] for row in told["measured"]] == [2]
    assert told["alerts"] == [{**alert.fields(), "details": []}]
    assert box.asked == [MeasurementEventsRequest(name=None, most=9, alerts_after=0)]


async def test_alerts_and_the_outbox(web: httpx.AsyncClient, box: FixedBox) -> None:
    """As the agent tells them; an alert that is not on record is not there."""
    box.answers = {
        AlertsRequest: {"alerts": [], "windows": []},
        OutboxRequest: {"rows": [], "delivery": {}},
        AlertRequest: {"alert": None, "changes": [], "rows": []},
    }
    assert (await web.get("/api/v1/alerts")).json() == {"alerts": [], "windows": []}
    assert (await web.get("/api/v1/outbox?most=7")).json() == {"rows": [], "delivery": {}}
    assert (await web.get("/api/v1/alerts/A17")).json()["changes"] == []
    assert box.asked[1:] == [OutboxRequest(7), AlertRequest("A17")]
    box.answers[AlertRequest] = refused("not-found", 'no alert "A18" is on record')
    assert (await web.get("/api/v1/alerts/A18")).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/history",
        "/api/v1/history?profile=",
        "/api/v1/history?profile=a&since=-1",
        "/api/v1/history?profile=a&since=nan",
        "/api/v1/history?profile=a&since=1e12",
        "/api/v1/history?profile=a&series=ttft",
        f"/api/v1/profiles/{'a' * 49}",
        "/api/v1/events?most=0",
        "/api/v1/events?most=1001",
        "/api/v1/outbox?most=x",
        "/api/v1/operations?most=501",
        "/api/v1/operations/0",
        "/api/v1/operations/x",
        f"/api/v1/operations/{1 << 53}",
        "/api/v1/alerts/B1",
        "/api/v1/alerts/A1234567890",
        f"/api/v1/act/{'a' * 121}",
    ],
)
async def test_a_value_out_of_range_is_refused(
    web: httpx.AsyncClient, box: FixedBox, path: str
) -> None:
    """Before any daemon is asked, with the name of the value."""
    response = await web.get(path)
    assert response.status_code == 422
    assert response.json()["detail"].startswith(("query.", "path."))
    assert box.asked == []


@pytest.mark.parametrize(
    ("error", "status", "hint"),
    [
        (refused("busy", "too many connections: try again"), 409, "try again"),
        (refused("precondition", "smol does not serve: appliance status"), 409, "appliance status"),
        (refused("unreachable", "the supervisor does not answer"), 503, ""),
        (refused("failed", "no room"), 502, ""),
        (refused("denied", "no"), 403, ""),
        (refused("bad-request", "not measured"), 422, ""),
        (BusyError("other probes run: appliance status"), 409, "appliance status"),
        (UnreachableError("the health agent does not answer"), 503, ""),
        (StoreError("the disk is full"), 502, ""),
    ],
)
async def test_an_error_is_a_problem_by_its_kind(
    web: httpx.AsyncClient, box: FixedBox, error: ApplianceError, status: int, hint: str
) -> None:
    """The status says whose fault it is, of a daemon's error and of this process's own alike."""
    box.answers[OutboxRequest] = error
    response = await web.get("/api/v1/outbox")
    assert (response.status_code, response.json()["hint"]) == (status, hint)
    assert response.headers["content-type"] == "application/problem+json"


async def test_a_button_acts_by_post_and_asks_by_get(web: httpx.AsyncClient, box: FixedBox) -> None:
    """GET changes nothing, however often; the page has one form to itself and names the alert."""
    box.answers[ActRequest] = {"message": "A17 is acked"}
    for _ in range(3):
        page = await web.get(f"/api/v1/act/{TOKEN}")
        assert page.status_code == 200
        assert "Ack A17" in page.text
        assert '<form method="post">' in page.text
        assert "SeCrEt" not in page.text
    assert box.asked == []
    done = await web.post(f"/api/v1/act/{TOKEN}")
    assert (done.status_code, done.json()) == (200, {"message": "A17 is acked"})
    assert box.asked == [ActRequest(TOKEN)]


async def test_a_token_that_does_not_work_is_refused_alike(
    web: httpx.AsyncClient, box: FixedBox
) -> None:
    """Used, unknown and malformed ones have the same answer, which repeats none of it."""
    box.answers[ActRequest] = refused("denied", f"the button {TOKEN} was used")
    answers = [
        await web.post(f"/api/v1/act/{TOKEN}"),
        await web.post("/api/v1/act/nonsense"),
        await web.get("/api/v1/act/<script>"),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.text for answer in answers}) == 1
    assert "SeCrEt" not in answers[0].text


async def test_the_document_describes_every_answer(web: httpx.AsyncClient) -> None:
    """Each path has a description, each parameter too, each answer a schema that exists."""
    document = (await web.get("/api/v1/openapi.json")).json()
    schemas = document["components"]["schemas"]
    assert schemas["ProfileRow"]["properties"]["state"]["enum"][0] == "serving"
    since = schemas["SeriesSpeed"]["properties"]["since_unix_s"]
    assert since["type"] == ["number", "null"]
    assert since["description"].startswith("Beginning of the loss")
    references = {
        part.split('"')[0] for part in json.dumps(document).split("#/components/schemas/")[1:]
    }
    assert references <= {*schemas}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert all(one["description"] for one in operation.get("parameters", [])), path
            statuses = {*operation["responses"]}
            assert {"403", "404", "405", "413", "422", "503"} <= statuses, path
            assert "HTTPValidationError" not in json.dumps(operation), path


async def test_every_answer_has_an_example_that_is_one(web: httpx.AsyncClient) -> None:
    """Of a document the whole one, which its schema allows; of a short answer each value."""
    document = (await web.get("/api/v1/openapi.json")).json()
    defs = json.loads(
        json.dumps(document["components"]["schemas"]).replace("#/components/schemas/", "#/$defs/")
    )
    answers = [
        answer["content"]["application/json"]
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    ]
    of_models = {"OperationStarted", "ActionDone"}
    for answer in answers:
        name = answer["schema"]["$ref"].rpartition("/")[2]
        schema = {**defs[name]}
        examples = [answer["example"]] if "example" in answer else schema.pop("examples", [])
        if name in of_models:
            assert all("examples" in schema["properties"][key] for key in schema["required"])
        elif name == "Rehearsal":
            assert [one.keys() for one in examples] == [schema["properties"].keys()]
        else:
            [example] = examples
            assert violations(example, closed({**schema, "$defs": plain(defs)})) == [], name


def plain(schemas: dict[str, Any]) -> dict[str, Any]:
    """Schemas without their examples, which the validator does not know."""
    return {
        name: {key: value for key, value in schema.items() if key != "examples"}
        for name, schema in schemas.items()
    }


async def test_a_fault_of_ours_tells_nothing(
    box: FixedBox, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer has no text of the fault; the journal has it, without the token in the path."""
    application = make_application(box, FixedFocus(), FakeBoxActions(), SameOriginPolicy.of([]))
    box.answers[ActRequest] = {"no": "message"}
    async with browse(application) as client:
        response = await client.post(f"/api/v1/act/{TOKEN}")
    assert response.status_code == 500
    assert response.headers["content-security-policy"]
    assert response.json()["hint"] == "journalctl -u appliance-web"
    assert "POST of /api/v1/act/{token} failed" in caplog.text
    assert "SeCrEt" not in caplog.records[-1].getMessage()


async def test_the_requests_of_clients_are_passed_on(web: httpx.AsyncClient, box: FixedBox) -> None:
    """As the supervisor tells them; while the gateway is away, that is the problem."""
    listed = {"requests": [{"id": "3f9a1c-12", "profile": "smol"}], "left_off": 0}
    box.answers[ClientRequestsRequest] = listed
    assert (await web.get("/api/v1/requests")).json() == listed
    box.answers[ClientRequestsRequest] = refused("failed", "the gateway does not answer: x")
    assert (await web.get("/api/v1/requests")).status_code == 502


async def test_the_record_of_states_is_passed_on(web: httpx.AsyncClient, box: FixedBox) -> None:
    """As the health agent tells it."""
    found = {"profiles": {"smol": [[1.0, "serving"]]}, "until_unix_s": 5.0}
    box.answers[StateRecordRequest] = found
    assert (await web.get("/api/v1/states")).json() == found
