"""Requests that are no work: GET, HEAD and OPTIONS without a body never wait, and cause no switch."""

import pytest

from appliance.model.gateway import Limits, Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from tests.fakes.engine_server import answering, sized
from tests.unit.gateway.relay.rig import Rig, get, post, rigged
from tests.waiting import until

PATHS = ("/", "/health", "/props", "/v1/models", "/models", "/version", "/ping", "/v1/nothing")
UNREADY = {
    "loads": State(standings={"genesis": Standing.STARTING}, committed=("genesis",)),
    "switch": State(standings={"genesis": Standing.SERVING}, held=frozenset({"genesis"})),
    "switch to it": State(target=("genesis",), held=frozenset({"genesis"})),
    "nothing serves": State(),
    "hold": State(committed=("genesis",), paused=True),
    "command of an operator": State(committed=("genesis",), paused=True, lent=True),
    "failed": State(committed=("genesis",), failed=frozenset({"genesis"})),
}
BETA = Routed(
    name="beta",
    served=("b*",),
    engine_name="beta",
    endpoint=Endpoint(port=1),
    handling=Handling(on_request=True),
)


@pytest.mark.parametrize("state", UNREADY)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_looking_is_answered_at_once(state: str, method: str) -> None:
    """Requests that only look are answered whatever the box does, and on every path; the list of models is there all the time."""
    async with rigged(answering(), limits=Limits()) as rig:
        rig.table.take(UNREADY[state])
        caller = await rig.connect()
        for path in PATHS:
            await caller.send(get(path, method=method))
            answer = await caller.answer(head_only=method == "HEAD")
            assert answer.status == (200 if "models" in path else 503), path
            assert answer.whole
            assert ("retry-after" in answer.headers) is (
                answer.status == 503 and "hold" not in state and "command" not in state
            )
        assert len(rig.relay.hold_queue) == 0
        assert rig.engine.heard == []


async def test_unready_model_is_named() -> None:
    """The answer says which profile is not ready, and that requests for answers wait."""
    async with rigged(answering()) as rig:
        rig.tell(Standing.STARTING)
        answer = await rig.ask(get("/props"))
        assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
        assert str(answer.error["message"]).startswith(
            "genesis is being loaded, replaced or measured"
        )


@pytest.mark.parametrize("raw", [post(), get("/v1/x", method="DELETE"), post(path="/tokenize")])
async def test_work_waits(raw: bytes) -> None:
    """Requests with a body, and those that are not sure to change nothing, wait as before."""
    async with rigged(answering(sized(b"{}"))) as rig:
        rig.tell(Standing.STARTING)
        caller = await rig.connect()
        await caller.send(raw)
        await until(lambda: len(rig.relay.hold_queue) == 1)
        rig.tell(Standing.SERVING)
        assert (await caller.answer()).status == 200


@pytest.mark.parametrize(
    "response",
    [sized(b"12345"), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n"],
)
async def test_head_is_get_without_a_body(response: bytes) -> None:
    """The engine is asked by GET, also one that does not know HEAD; an endless body is not waited for."""
    async with rigged(answering(response)) as rig:
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(get("/", method="HEAD"))
            answer = await caller.answer(head_only=True)
            assert (answer.status, answer.body, answer.whole) == (200, b"", True)
            assert answer.headers.get("content-length") == ("5" if b"Length" in response else None)
        assert [heard.line for heard in rig.engine.heard] == [b"GET / HTTP/1.1"] * 2
        assert rig.relay.in_flight(["genesis"]) == 0
        assert [seen.end for seen in rig.watcher.seen] == [(200, b"")] * 2


# A model in the query.


def with_beta(rig: Rig) -> list[str]:
    """Add a profile that is switched to on request; return the list of those that are asked for."""
    asked: list[str] = []
    rig.table.adopt({"beta": BETA, **rig.table.catalogue})
    rig.table.request_switch = lambda routed, _key: asked.append(routed.name)
    return asked


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/props?model=genesis", 200, None),
        ("/props?model=default", 200, None),
        ("/props?model=", 200, None),
        ("/props?autoload=false&model=genesis&model=beta", 200, None),
        ("/props?mode=beta", 200, None),
        ("/props?model=beta", 404, "model_not_active"),
        ("/props?x=1&model=b%61ta", 404, "model_not_active"),
        ("/props?model=none", 404, "model_not_found"),
        ("/props?model=%ff%00", 404, "model_not_found"),
        ("/props?model=" + "x" * 4000, 404, "model_not_found"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_model_in_the_query_is_the_one_that_answers(
    target: str, status: int, code: str | None, method: str
) -> None:
    """No other model answers for it, and looking at a model that does not run switches to none."""
    async with rigged(answering(sized(b"{}"))) as rig:
        asked = with_beta(rig)
        answer = await rig.ask(get(target, method=method))
        assert answer.status == status
        if code is not None and method == "GET":
            assert answer.error["code"] == code
        assert asked == []
        assert [heard.line.split()[1].decode() for heard in rig.engine.heard] == [target] * (
            status == 200
        )


async def test_a_websocket_names_its_model_in_the_query() -> None:
    """As OpenAI's realtime API does; it is work, so it may switch, and it waits."""
    async with rigged(answering()) as rig:
        asked = with_beta(rig)
        caller = await rig.connect()
        await caller.send(
            get("/v1/realtime?model=beta", headers="Connection: Upgrade\r\nUpgrade: websocket\r\n")
        )
        await until(lambda: len(rig.relay.hold_queue) == 1)
        assert set(asked) == {"beta"}


async def test_a_body_has_precedence() -> None:
    """The model of a body is the one that the engine reads."""
    async with rigged(answering(sized(b"{}"))) as rig:
        with_beta(rig)
        assert (await rig.ask(post(path="/v1/completions?model=beta"))).status == 200
