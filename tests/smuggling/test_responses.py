"""Every answer of a broken or hostile engine, cut in three ways, through the relay."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.smuggling.cases import SENTINEL, asking_sentinel
from tests.smuggling.client import CUTS, Client, Cut, Said, at_once, connected
from tests.smuggling.engine import Say, echo
from tests.smuggling.reference import Read
from tests.smuggling.responses import ANSWERS, Answer, Fate
from tests.smuggling.rig import Rig, rig

_BODY = b'{"model":"m"}'
_SAID_S = 5.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def up() -> AsyncIterator[Rig]:
    """One gateway for all of them: what an engine says too much would come with a later answer."""
    async with rig() as up:
        yield up


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in ANSWERS])
async def test_an_answer_is_passed_on_exactly_or_its_fault_is_told(up: Rig, case: Answer) -> None:
    """No client takes a part for the whole, and none gets what was another's."""
    for cut in CUTS:
        over = asyncio.Event()
        up.engine.say = saying(case, cut, over)
        async with connected(up.port) as client:
            await client.send(at_once(asking(case)))
            said = await client.answer(head_only=case.method == b"HEAD")
            where = f"{case.name}, {cut.__name__}: {said}"
            assert said is not None, where
            fate = fate_of(case, said)
            assert fate in case.fates, where
            await asyncio.wait_for(over.wait(), _SAID_S)
            up.engine.say = echo
            await check_next(client, where)
        async with connected(up.port) as client:
            assert await check_next(client, where)


def asking(case: Answer) -> bytes:
    """A request that the engine's answer is for."""
    body = b"" if case.method == b"HEAD" else _BODY
    head = b"%b /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    return head % (case.method, len(body)) + body


def saying(case: Answer, cut: Cut, over: asyncio.Event) -> Say:
    """An engine that says the bytes of the case."""

    async def say(_request: Read, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            for piece in cut(case.raw):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        if case.hangs_up:
            writer.close()
        # What was said too much has to be noticed before the next request: nobody could tell later.
        await asyncio.sleep(0.002)
        over.set()

    return say


def fate_of(case: Answer, said: Said) -> Fate | None:
    """Return the fate of an answer; None: one that is never allowed."""
    if not said.whole:
        return Fate.BROKEN
    if (said.status, said.body) == (case.status, case.body):
        return Fate.WHOLE
    if said.status in (502, 503) and b'"error"' in said.body:
        return Fate.REFUSED
    rest = said.body.removeprefix(case.body)
    if said.status == 200 and rest != said.body and b"data: " in rest and b'"error"' in rest:
        return Fate.EXPLAINED
    return None


async def check_next(client: Client, where: str) -> bool:
    """The next request gets its own answer, or none when the connection was closed."""
    await client.send(at_once(asking_sentinel()))
    said = await client.answer()
    if said is None:
        return False
    assert said.status == 200, where
    assert b'"target": "' + SENTINEL + b'"' in said.body, where
    return True


def test_each_fate_is_met() -> None:
    """Among the cases are whole answers, refused ones, broken ones and explained ones."""
    assert {fate for case in ANSWERS for fate in case.fates} == set(Fate)
