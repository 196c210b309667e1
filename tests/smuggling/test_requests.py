"""Every request of the corpus, cut in three ways, through the relay on a real socket."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.smuggling.cases import SENTINEL, Case, asking_sentinel
from tests.smuggling.client import CUTS, Client, Cut, Said, at_once, connected
from tests.smuggling.corpus import REQUESTS
from tests.smuggling.engine import ScriptedEngine
from tests.smuggling.reference import Read, read_leniently
from tests.smuggling.rig import Rig, rig

# Headers that a relay has its own of, or that are for one hop alone.
OWN = frozenset(
    b"connection content-length expect host http2-settings keep-alive proxy-authorization"
    b" proxy-connection te trailer transfer-encoding upgrade authorization x-api-key".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of a case."""

    answers: tuple[Said, ...]
    more: bytes
    """Bytes after the answers, before the connection was closed."""
    requests: tuple[Read, ...]
    """Requests that the engine got, without the sentinel."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up() -> AsyncIterator[Rig]:
    """One gateway for the whole corpus: what a case leaves behind would show in the next one."""
    async with rig() as up:
        yield up


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in REQUESTS])
async def test_a_request_is_passed_on_exactly_or_not_at_all(up: Rig, case: Case) -> None:
    """A request becomes the same request, and no other, however its bytes are cut."""
    for cut in CUTS:
        up.engine.forget()
        outcome = await play(up, case, cut)
        where = f"{case.name}, {cut.__name__}"
        check_requests(case, outcome, where)
        check_answers(case, outcome, where)
        check_engine(up.engine, where)
        check_reference(case, outcome, where)


def test_the_corpus_is_large_enough() -> None:
    """The corpus has at least 200 cases."""
    assert len(REQUESTS) >= 200


async def play(up: Rig, case: Case, cut: Cut) -> Outcome:
    """Send a case, read what comes, and see whether the connection is still in step."""
    async with connected(up.port) as client:
        await client.send(cut(case.raw))
        answers = await answers_to(client, case)
        if case.refused:
            answers.append(await answer(client))
        if case.unfinished or case.droppable:
            client.hang_up()
        more = b""
        if case.closes or case.droppable:
            more = await client.rest()
        else:
            await check_in_step(client)
    return Outcome(
        answers=tuple(answers),
        more=more,
        requests=tuple(r for r in up.engine.requests if r.target != SENTINEL),
    )


async def answers_to(client: Client, case: Case) -> list[Said]:
    """One for each request that the engine should get."""
    answers: list[Said] = []
    for taken in case.taken:
        said = await client.answer(head_only=taken.method == b"HEAD")
        if said is None and case.droppable and answers:
            break
        assert said is not None, "the connection was closed without an answer"
        answers.append(said)
    return answers


async def answer(client: Client, *, head_only: bool = False) -> Said:
    """The next answer; there has to be one."""
    said = await client.answer(head_only=head_only)
    assert said is not None, "the connection was closed without an answer"
    return said


async def check_in_step(client: Client) -> None:
    """The next request on the connection is answered as itself."""
    await client.send(at_once(asking_sentinel()))
    said = await answer(client)
    assert said.status == 200
    assert b'"target": "/v1/sentinel"' in said.body


def check_requests(case: Case, outcome: Outcome, where: str) -> None:
    """The engine got the requests of the case, and no other."""
    got = [(request.method, request.target, request.body) for request in outcome.requests]
    wanted = [(_sent(one.method), one.target, one.body) for one in case.taken]
    assert got == wanted[: len(got) if case.droppable else None], where
    assert got or not case.taken, where


def check_answers(case: Case, outcome: Outcome, where: str) -> None:
    """Each request was answered once, and nothing was said beyond that."""
    statuses = [said.status for said in outcome.answers]
    assert all(said.whole for said in outcome.answers), where
    told = [one.status for one in case.taken][: len(outcome.requests)]
    assert statuses[: len(outcome.requests)] == told, where
    if case.refused:
        assert statuses[-1] in case.refused, where
    if case.unfinished or case.droppable:
        assert not outcome.more or outcome.more.startswith(b"HTTP/1.1 400 "), where
    else:
        assert outcome.more == b"", where


def check_engine(engine: ScriptedEngine, where: str) -> None:
    """Check that no connection left the engine in the middle of a request, or with nonsense."""
    for reading in engine.readings():
        assert reading.error is None, where
        assert reading.clean, where


def check_reference(case: Case, outcome: Outcome, where: str) -> None:
    """Check that requests refused by h11 went no further, and that both read the others alike."""
    reading = read_leniently(case.raw)
    assert len(outcome.requests) <= len(reading.requests), f"{where}: h11 says {reading.error}"
    for ours, theirs in zip(outcome.requests, reading.requests, strict=False):
        assert ours.method == _sent(theirs.method), where
        assert theirs.target.endswith(ours.target), where
        assert ours.body == theirs.body, where
        assert interesting(ours) == interesting(theirs), where


def _sent(method: bytes) -> bytes:
    """Return the method that the engine gets: not every engine answers HEAD."""
    return b"GET" if method == b"HEAD" else method


def interesting(request: Read) -> list[tuple[bytes, bytes]]:
    """The headers that have to arrive as they were sent."""
    named = b",".join(request.values(b"connection")).lower().split(b",")
    own = OWN | {b"content-encoding"} | {name.strip() for name in named} - {b"content-type"}
    return [(name, value) for name, value in request.headers if name not in own]
