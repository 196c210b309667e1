"""Waits of tests: for events and conditions, and in real time only with a reason."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import settle, until

TESTS = Path(__file__).parents[1]
FAST = ("unit", "contracts", "property")
REASON = "  # real time: "


def sleeps(text: str) -> Iterator[int]:
    """Yield the line of each sleep that takes real time and gives no reason in the same line."""
    if "sleep" not in text:
        return
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module="time" | "asyncio", names=names):
                refused = any(name.name == "sleep" for name in names)
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=0)]):
                refused = False
            case ast.Call(func=ast.Attribute(attr="sleep")):
                refused = REASON not in lines[(node.end_lineno or node.lineno) - 1]
            case _:
                continue
        if refused:
            yield node.lineno


def test_no_sleep_is_without_a_reason() -> None:
    """A test waits for what it needs: a sleep is too long here, and too short on a busy machine."""
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for folder in FAST
        for path in sorted((TESTS / folder).rglob("*.py"))
        for line in sleeps(path.read_text())
    ]
    assert not found, (
        f"{', '.join(found)}: wait with tests/waiting.py, in virtual time (tests/fakes/"
        f"virtual_time.py), for an event, a pipe or a process; or end the line with{REASON}WHY"
    )


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("time.sleep(1)", True),
        ("await asyncio.sleep(0.01)", True),
        ("await asyncio.sleep(pause_s)  # long enough", True),
        ("from time import sleep", True),
        ("from asyncio import sleep as pause", True),
        ("await asyncio.sleep(0)", False),
        ("time.sleep(0.1)  # real time: a heartbeat", False),
        ("await settle()", False),
        ("script = 'import time; time.sleep(60)'", False),
    ],
)
def test_what_a_sleep_is(line: str, *, refused: bool) -> None:
    """A pass of the loop is no sleep, nor is a program that stays until it is killed."""
    assert list(sleeps(f"async def test():\n    {line}\n")) == ([2] if refused else [])


async def test_what_is_ready_runs_while_a_test_settles() -> None:
    """Tasks that wake one another have run after as many passes."""
    woken = [asyncio.Event() for _ in range(5)]

    async def wake(number: int) -> None:
        await woken[number].wait()
        woken[number + 1].set()

    tasks = [asyncio.create_task(wake(number)) for number in range(4)]
    woken[0].set()
    await settle()
    assert all(task.done() for task in tasks)


async def test_a_condition_of_one_pass_is_seen() -> None:
    """A condition that a task sets and clears again is seen; one that never holds is a TimeoutError."""
    passes: list[int] = []

    async def count() -> None:
        for number in range(200):
            passes.append(number)
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await until(lambda: len(passes) == 100)
    assert len(passes) == 100
    await counting
    with pytest.raises(TimeoutError):
        await until(lambda: False, within_s=0.01)
