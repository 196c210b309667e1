"""Addresses that are open: this machine's always, others while a token exists, strangers never."""

import asyncio
import logging
from dataclasses import dataclass, field

import httpx
import pytest

from appliance.model.errors import BusyError, UnreachableError
from appliance.model.status import StatusDocument
from appliance.model.web_addresses import WebAddresses
from appliance.routing.origin_policy import SameOriginPolicy
from appliance.web.api.stream import KEEP_ALIVE_S
from appliance.web.application import make_application
from appliance.web.box_documents import BoxDocuments
from appliance.web.guards import ASK_EVERY_S, CHECK_EVERY_S, OpenAddresses, is_of_this_machine
from appliance.web.page.routes import COOKIE
from appliance.web.page.view import STATIC_TYPES
from appliance.wire.alert_requests import ActRequest
from appliance.wire.control_events import OperationsRequest
from appliance.wire.health_socket import MeasurementEventsRequest
from appliance.wire.status_socket import FollowRequest, WatchRequest
from tests.fakes.fixed_box import FixedBox, FixedFocus
from tests.fakes.operator_actions import TOKEN, FakeBoxActions
from tests.fakes.virtual_time import advance

NAMED = WebAddresses(addresses=("127.0.0.1", "10.20.0.1"))
BOUND = [("127.0.0.1", 8011), ("10.20.0.1", 8011), ("10.20.0.1", 8099), ("192.168.1.9", 8011)]


class FakeSupervisor:
    """Supervisor that says whether a token is usable; None: it does not answer."""

    def __init__(self, *, answer: bool | None) -> None:
        self.answer = answer
        self.asked = 0

    async def is_any_usable(self) -> bool:
        """Answer, and count it."""
        self.asked += 1
        if self.answer is None:
            raise UnreachableError("supervisor not running")
        return self.answer


def admitted(addresses: OpenAddresses) -> list[tuple[str, int]]:
    return [one for one in BOUND if addresses.admits(*one)]


async def test_other_machines_are_let_in_while_a_token_exists() -> None:
    """Closed until the supervisor has said so, and again once the last token is gone."""
    supervisor = FakeSupervisor(answer=None)
    addresses = OpenAddresses(NAMED, BOUND, supervisor.is_any_usable)
    for answer, expected in ((None, 1), (False, 1), (True, 2), (None, 2), (False, 1)):
        supervisor.answer = answer
        await addresses.ask()
        assert admitted(addresses) == BOUND[:expected]


async def test_an_address_that_nobody_has_named_is_never_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A drop-in by hand, or one that remained: the journal names it, with the way to open it."""
    supervisor = FakeSupervisor(answer=True)
    addresses = OpenAddresses(WebAddresses(), BOUND, supervisor.is_any_usable)
    await addresses.ask()
    assert admitted(addresses) == BOUND[:1]
    assert supervisor.asked == 0
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert [text.partition(", which")[0] for text in told] == [
        "appliance-web.socket listens on 10.20.0.1 port 8011",
        "appliance-web.socket listens on 10.20.0.1 port 8099",
        "appliance-web.socket listens on 192.168.1.9 port 8011",
    ]
    assert "list it in web.listen, then sudo appliance apply" in told[0]


async def test_a_wildcard_by_hand_opens_what_is_named_alone() -> None:
    """Each connection tells the address that its client has used."""
    supervisor = FakeSupervisor(answer=True)
    wildcard = [("0.0.0.0", 8011)]  # noqa: S104 - not bound
    addresses = OpenAddresses(NAMED, wildcard, supervisor.is_any_usable)
    await addresses.ask()
    assert admitted(addresses) == BOUND[:1]


@pytest.mark.virtual_time
async def test_the_supervisor_is_asked_again_and_again() -> None:
    """Asking goes on, so that a removed token closes the addresses, and a new one opens them, within seconds."""
    supervisor = FakeSupervisor(answer=True)
    addresses = OpenAddresses(NAMED, BOUND, supervisor.is_any_usable)
    task = asyncio.create_task(addresses.follow())
    await advance(ASK_EVERY_S + 0.1)
    assert admitted(addresses) == BOUND[:2]
    supervisor.answer = False
    await advance(ASK_EVERY_S)
    assert admitted(addresses) == BOUND[:1]
    task.cancel()
    await asyncio.wait({task})
    assert supervisor.asked == 2


@pytest.mark.parametrize(
    ("server", "client", "is_own"),
    [
        (("127.0.0.1", 8011), ("127.0.0.1", 5000), True),
        (("::1", 8011), ("::1", 5000), True),
        (("10.20.0.1", 8011), ("10.20.0.1", 5000), False),
        (("127.0.0.1", 8011), ("10.20.0.2", 5000), False),
        (("127.0.0.1", 8011), None, False),
        (None, ("127.0.0.1", 5000), False),
    ],
)
def test_both_ends_tell_that_a_client_is_of_this_machine(
    server: tuple[str, int] | None, client: tuple[str, int] | None, *, is_own: bool
) -> None:
    """Packets from elsewhere may be forwarded to 127.0.0.1; an end that is not known is another machine's."""
    assert is_of_this_machine(server, client) is is_own


BEARER = {"authorization": f"Bearer {TOKEN}"}
ABROAD = "10.20.0.1"
BUTTON = f"/api/v1/act/A17.ack.{'a' * 32}"


@dataclass
class Machines:
    """A box, and clients of it on other machines and on the box itself."""

    actions: FakeBoxActions = field(default_factory=FakeBoxActions)
    box: FixedBox = field(
        default_factory=lambda: FixedBox(
            BoxDocuments(unix_s=1.0, status=StatusDocument(host="garage"))
        )
    )

    def __post_init__(self) -> None:
        policy = SameOriginPolicy.of([ABROAD])
        self.application = make_application(self.box, FixedFocus(), self.actions, policy)

    def client(self, server: str = ABROAD, client: str = "10.20.0.2") -> httpx.AsyncClient:
        """Return a client at one address, which has asked for another."""
        transport = httpx.ASGITransport(self.application, client=(client, 5000))
        return httpx.AsyncClient(transport=transport, base_url=f"http://{server}:8011")


@pytest.fixture
def machines() -> Machines:
    return Machines()


def readable(machines: Machines) -> list[str]:
    """Every path that is read with GET, by the routes themselves."""
    found = []
    for path, item in machines.application.openapi()["paths"].items():
        if "get" in item and "{token}" not in path:
            found.append(path.replace("{id}", "1").replace("{name}", "aeon"))
    return [*found, "/status.md", "/api/v1/openapi.json", "/nowhere"]


async def test_other_machines_read_nothing_without_a_token(machines: Machines) -> None:
    """Not even whether a path exists; no daemon is asked."""
    async with machines.client() as web:
        paths = readable(machines)
        assert len(paths) > 12
        for path in paths:
            answer = await web.get(path)
            assert answer.status_code == 401, path
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["www-authenticate"].startswith("Bearer ")
            assert "appliance token add NAME" in answer.json()["hint"]
            assert "x-frame-options" in answer.headers
    assert machines.box.asked == []


@pytest.mark.parametrize(
    ("server", "client"),
    [(ABROAD, "10.20.0.2"), (ABROAD, ABROAD), (ABROAD, "127.0.0.1"), ("127.0.0.1", "10.20.0.2")],
    ids=["another machine", "this one, by its address", "one end is loopback", "forwarded"],
)
async def test_only_loopback_is_of_this_machine(
    machines: Machines, server: str, client: str
) -> None:
    """Both ends have to be, since packets may be forwarded to 127.0.0.1."""
    async with machines.client(server, client) as web:
        assert (await web.get("/livez")).status_code == 401
    async with machines.client("127.0.0.1", "127.0.0.1") as web:
        assert (await web.get("/livez")).status_code == 200


async def test_with_a_token_everything_can_be_read(machines: Machines) -> None:
    """The routes answer as they do on this machine."""
    async with machines.client() as web, machines.client("127.0.0.1", "127.0.0.1") as own:
        for path in ("/livez", "/api/v1/status", "/metrics", "/", "/nowhere"):
            there, here = await web.get(path, headers=BEARER), await own.get(path)
            assert there.status_code == here.status_code, path
        assert (await web.get("/api/v1/status", headers=BEARER)).json()["host"] == "garage"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"authorization": f"Bearer {TOKEN}0"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": "Bearer " + "x" * 5000}, 401),
        ({"cookie": f"{COOKIE}=x"}, 401),
        ({"cookie": f"{COOKIE}={TOKEN}"}, 401),
        ({"x-forwarded-for": "127.0.0.1"}, 401),
        ({"host": "127.0.0.1:8011"}, 401),
        ({**BEARER, "host": "evil.example"}, 403),
    ],
)
async def test_nothing_else_lets_another_machine_in(
    machines: Machines, headers: dict[str, str], expected: int
) -> None:
    """Headers can be forged; a strange host name is refused whatever else there is."""
    async with machines.client() as web:
        assert (await web.get("/api/v1/status", headers=headers)).status_code == expected


async def test_somebody_signs_in_from_another_machine(machines: Machines) -> None:
    """The page leads to the form, whose files are there; then the cookie reads what the page reads."""
    async with machines.client() as web:
        for method, path in (
            ("GET", "/"),
            ("POST", "/do/profile"),
            ("POST", "/logout"),
            ("POST", "/ask"),
        ):
            sent = await web.request(method, path)
            assert (sent.status_code, sent.headers["location"]) == (303, "/login")
        form = await web.get("/login")
        assert 'name="token"' in form.text
        assert "garage" not in form.text
        for name in STATIC_TYPES:
            assert (await web.get(f"/static/{name}")).status_code == 200
        refused = await web.post("/login", data={"token": "apt_x"})
        assert (refused.status_code, COOKIE in web.cookies) == (403, False)
        assert (await web.post("/login", data={"token": TOKEN})).status_code == 303
        assert "garage" in (await web.get("/")).text
        for path in ("/status.md", "/api/v1/status"):
            assert (await web.get(path)).status_code == 200
        machines.actions.operators.clear()
        assert (await web.get("/")).headers["location"] == "/login"
        assert (await web.get("/status.md")).status_code == 401


async def test_a_message_has_a_button_for_a_phone_elsewhere(machines: Machines) -> None:
    """The address of a button holds a token that works once, so it needs no other."""
    machines.box.answers[ActRequest] = {"message": "A17 is acked"}
    async with machines.client() as web:
        for path in (BUTTON, "/api/v1/act/none"):
            here = await machines.client("127.0.0.1", "127.0.0.1").get(path)
            assert (await web.get(path)).status_code == here.status_code != 401
        assert (await web.get("/api/v1/actx")).status_code == 401


async def test_a_check_that_fails_tells_why(machines: Machines) -> None:
    """A supervisor that is away, or one of many wrong secrets of an id: nothing is read meanwhile."""
    async with machines.client() as web:
        await web.post("/login", data={"token": TOKEN})
        for error, status in (
            (UnreachableError("supervisor not running"), 503),
            (BusyError("too many wrong tokens with this id: try again in a minute"), 429),
        ):
            machines.actions.checking = error
            for path in ("/", "/api/v1/status"):
                answer = await web.get(path)
                assert (answer.status_code, "garage" in answer.text) == (status, False)
    assert machines.box.asked == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("is_away", [False, True], ids=["removed", "supervisor away"])
async def test_a_stream_ends_with_its_token(machines: Machines, *, is_away: bool) -> None:
    """Within a check and a line of the stream; a supervisor that is away ends none: the stream tells so."""
    machines.box.answers[OperationsRequest] = {"operations": [{"id": 6}]}
    for request in (WatchRequest, FollowRequest, MeasurementEventsRequest):
        machines.box.told[request] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with machines.client() as web:
        stream = asyncio.create_task(web.get("/api/v1/stream", headers=BEARER, timeout=None))
        await advance(CHECK_EVERY_S * 3)
        assert not stream.done()
        machines.actions.checking = UnreachableError("away") if is_away else None
        machines.actions.operators.clear()
        done, _ = await asyncio.wait({stream}, timeout=CHECK_EVERY_S + KEEP_ALIVE_S + 1)
        if is_away:
            assert not done
            machines.actions.checking = None
            await asyncio.wait({stream}, timeout=CHECK_EVERY_S + KEEP_ALIVE_S + 1)
        told = stream.result()
    assert told.status_code == 200
    assert "event: snapshot" in told.text
    assert told.text.count("still here") >= 3
    assert loop.time() - began_s < CHECK_EVERY_S * 7
    assert machines.box.followers == 0
