"""Streams as clients for Python decode them. Runs where the clients are installed.

Its argument is the address of the server of streams; stdin has one JSON object, the API of each stream by the model to
ask for. It writes by client and model the text that the client handed out, and the error that it raised.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import anthropic
import litellm
import openai
from langchain_openai import ChatOpenAI

MESSAGES: Any = [{"role": "user", "content": "hello"}]
Ask = Callable[[str], Iterator[str]]

litellm.telemetry = False
litellm.suppress_debug_info = True


def _deltas(pieces: Iterable[Any]) -> Iterator[str]:
    for piece in pieces:
        yield from (choice.delta.content or "" for choice in piece.choices)


def _texts(pieces: Iterable[Any]) -> Iterator[str]:
    for piece in pieces:
        yield from (choice.text or "" for choice in piece.choices)


def clients(base: str) -> Mapping[str, Mapping[str, Ask]]:
    """Return what asks for the text of a model, by client and API."""
    sdk = openai.OpenAI(base_url=f"{base}/v1", api_key="x", max_retries=0)
    claude = anthropic.Anthropic(base_url=base, api_key="x", max_retries=0)
    chat = partial(ChatOpenAI, base_url=f"{base}/v1", api_key="x", max_retries=0)
    lite = partial(litellm.completion, messages=MESSAGES, api_key="x", stream=True, num_retries=0)

    def responses(model: str) -> Iterator[str]:
        pieces: Any = sdk.responses.create(model=model, input="hello", stream=True)
        return (piece.delta for piece in pieces if piece.type == "response.output_text.delta")

    def messages(model: str) -> Iterator[str]:
        pieces = claude.messages.create(model=model, max_tokens=9, messages=MESSAGES, stream=True)
        return (piece.delta.text for piece in pieces if piece.type == "content_block_delta")

    def langchain(model: str, *, of_responses: bool) -> Iterator[str]:
        asked = chat(model=model, use_responses_api=of_responses)
        return (str(piece.text) for piece in asked.stream("hello"))

    return {
        "openai": {
            "chat": lambda model: _deltas(
                sdk.chat.completions.create(model=model, messages=MESSAGES, stream=True)
            ),
            "completions": lambda model: _texts(
                sdk.completions.create(model=model, prompt="hello", stream=True)
            ),
            "responses": responses,
        },
        "anthropic": {"anthropic": messages},
        "langchain-openai": {
            "chat": partial(langchain, of_responses=False),
            "responses": partial(langchain, of_responses=True),
        },
        "litellm": {
            "chat": lambda model: _deltas(lite(model=f"openai/{model}", api_base=f"{base}/v1")),
            "anthropic": lambda model: _deltas(lite(model=f"anthropic/{model}", api_base=base)),
        },
    }


def main() -> None:
    """Ask for each stream, and write the outcomes."""
    models: dict[str, str] = json.load(sys.stdin)
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for client, asks in clients(sys.argv[1]).items():
        found[client] = {}
        for model, api in models.items():
            if api not in asks:
                continue
            text, error = "", ""
            try:
                for piece in asks[api](model):
                    text += piece
            except (openai.APIError, anthropic.APIError) as raised:
                error = str(raised)
            except Exception as raised:  # noqa: BLE001 - a client that fails at what it was sent
                text, error = f"FAILS after {text!r}", repr(raised)
            found[client][model] = text, error
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
