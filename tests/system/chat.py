"""Requests to a model in a box, as a client of its port makes them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.system.rig import Box, Stream

_PATIENCE_S = 240
"""A real model on a machine that is busy with other tests."""


def ask(box: Box, port: int, prompt: str, **options: object) -> str:
    """The model's answer to one question."""
    done = box.run(*_curl(port, prompt, options), timeout_s=_PATIENCE_S)
    answer: Mapping[str, Any] = json.loads(done.stdout)
    text: str = answer["choices"][0]["message"]["content"]
    return text


def ask_streaming(box: Box, port: int, prompt: str, **options: object) -> Stream:
    """A running request whose answer comes in pieces; read it with `pieces`."""
    return box.stream(*_curl(port, prompt, {"stream": True, **options}))


def pieces(stream: Stream) -> Iterator[Mapping[str, Any]]:
    """The pieces as they come. A stream that ends before its end mark is a failure that tells its end."""
    last = ""
    for line in stream.lines():
        if line == "data: [DONE]":
            return
        last = line or last
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
    raise AssertionError(f"cut: status {stream.wait()} {stream.errors().strip()!r} after {last!r}")


def _curl(port: int, prompt: str, options: Mapping[str, object]) -> list[str]:
    body = json.dumps({"messages": [{"role": "user", "content": prompt}], **options})
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return [
        "curl",
        "-sSN",
        "--fail-with-body",
        "-m",
        str(_PATIENCE_S),
        "-H",
        "Content-Type: application/json",
        "-d",
        body,
        url,
    ]
