"""Every callback of the gateway's request path has a guard: no exception of it reaches the event loop."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "appliance/gateway"
FILES = [
    ROOT / f"{name}.py"
    for name in (
        "capacity",
        "client_connection",
        "engine_pool",
        "event_loop",
        "exchange",
        "hold_queue",
        "interfaces",
        "listeners",
        "relay",
        "reply",
        "request_body",
    )
]
CALLBACKS = {
    "connection_made",
    "data_received",
    "eof_received",
    "connection_lost",
    "pause_writing",
    "resume_writing",
}
"""Methods of a protocol that the event loop calls."""
SCHEDULERS = {
    "add",
    "add_done_callback",
    "add_reader",
    "call_at",
    "call_later",
    "call_soon",
    "defer",
}
"""Methods that take a callback of ours; `add` and `defer` are the relay's own."""
TASKS = {"create_task", "ensure_future"}
GUARDED_INSIDE = {
    "ScanQueue._step": "each scan is guarded in Scan.advance, and what it calls at its end is guarded",
    "Relay._call_deferred": "what is deferred is guarded",
    "WriteBatch._end_turn": "each write is guarded in flush",
    "ReadBudget._begin_turn": "sets its turn anew before it calls anything, and what it calls is guarded",
    "Pool._relieve": "sets its timer anew before it closes anything",
    "HoldQueue._work": "each request is guarded, where it is routed and where its times are checked",
    "Acceptor._accept": "each client is guarded",
    "Acceptor._serve_waiting": "each client is guarded",
    "Handshake._shake_hands": "the event loop closes the socket of a handshake that fails",
}
"""Callbacks and tasks that serve many requests, with the place of the guard."""


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base) for base in node.bases}


def _given_to_the_loop(node: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the methods of a class that are called by the event loop or by a queue."""
    own = {
        one.name
        for one in node.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and "property" not in map(ast.unparse, one.decorator_list)
    }
    if any("asyncio.Protocol" in base for base in _bases(node)):
        yield from own & CALLBACKS
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        for given in call.args:
            if call.func.attr in TASKS and isinstance(given, ast.Call):
                given = given.func  # noqa: PLW2901
            elif call.func.attr not in SCHEDULERS:
                continue
            if isinstance(given, ast.Attribute) and given.attr in own:
                yield given.attr


def _is_guarded(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if any(ast.unparse(one) == "guarded" for one in method.decorator_list):
        return True
    body = [one for one in method.body if not _is_harmless(one)]
    return all(
        isinstance(one, ast.Try)
        and any(ast.unparse(h.type) == "Exception" for h in one.handlers if h.type)
        for one in body
    )


def _is_harmless(statement: ast.stmt) -> bool:
    """Tell whether a statement is a docstring, or calls nothing but the pool's and the loop's own methods."""
    calls = {ast.unparse(one.func) for one in ast.walk(statement) if isinstance(one, ast.Call)}
    return not isinstance(statement, ast.Try) and calls <= {
        "self._pool.forget",
        "self.read_late",
        "asyncio.get_running_loop",
        "asyncio.get_running_loop().call_later",
    }


def unguarded(text: str) -> list[str]:
    """Return the callbacks and tasks of a module that have no guard, as ``Class.method``."""
    return [
        f"{node.name}.{method.name}"
        for node in _classes(ast.parse(text))
        for given in [set(_given_to_the_loop(node))]
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and method.name in given
        and not _is_guarded(method)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_callback_has_a_guard(file: Path) -> None:
    """Connections, timers, queues and tasks: each is guarded, or named with where its guard is."""
    missing = set(unguarded(file.read_text("utf-8"))) - set(GUARDED_INSIDE)
    assert not missing, "decorate with appliance.gateway.event_loop.guarded"


def test_the_named_ones_exist() -> None:
    """The list names no callback that has a guard by now, or has gone."""
    assert {name for file in FILES for name in unguarded(file.read_text("utf-8"))} == set(
        GUARDED_INSIDE
    )


@pytest.mark.parametrize(
    "text",
    [
        "class A(asyncio.Protocol):\n  def data_received(self, data): self.read(data)",
        "class A(asyncio.Protocol):\n  def data_received(self, data):\n    try: self.read()\n    except ValueError: pass",
        "class A:\n  def go(self): loop.call_soon(self._step)\n  def _step(self): self.work()",
        "class A:\n  def go(self): self.relay.defer(self._step)\n  def _step(self): self.work()",
        "class A:\n  def go(self): loop.create_task(self._run())\n  async def _run(self): await self.work()",
    ],
)
def test_a_callback_without_a_guard_is_found(text: str) -> None:
    """The check can fail, for each kind of callback."""
    assert len(unguarded(text)) == 1
