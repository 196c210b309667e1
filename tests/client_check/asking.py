"""Clients' side of the check: asks the gateway as the programs of people do. Runs where the clients are installed.

Reads asks from stdin, one JSON object a line, and answers each with a line as soon as it is done, in any order.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import litellm
import openai

TIMEOUT_S = 240
TOKENS = 12
AT_ONCE = 4
"""Asks at a time: clients take CPU time, which the model needs too."""
LONG_TOKENS = 1500
LONG: dict[str, Any] = {"ignore_eos": True}
"""Field of llama.cpp, with which an answer is as long as it may be."""
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
DESCRIPTION = "Current weather of a city"
FUNCTION = "def weather(city: str) -> str:\n    'Current weather of a city'\n    return 'sunny'\n"

litellm.telemetry = False
litellm.suppress_debug_info = True


class Answer:
    """Answer of one client: its text, the names of the tools that it calls, and the pieces that it came in."""

    def __init__(self) -> None:
        self.text = ""
        self.tools: list[str] = []
        self.pieces = 0

    def add(self, text: str | None, tools: Iterable[str | None] = ()) -> None:
        """Add a piece."""
        self.pieces += 1
        self.text += text or ""
        self.tools += [name for name in tools if name]


class Clients:
    """The clients, each with the settings that docs/how-to/connect-clients.md gives.

    Args:
        base: Address of the gateway.
        key: Inference key.
        llm: The program llm.
    """

    def __init__(self, base: str, key: str, llm: str) -> None:
        self._base, self._key, self._llm = base, key, llm
        self._openai = openai.OpenAI(base_url=f"{base}/v1", api_key=key, timeout=TIMEOUT_S)
        self._anthropic = anthropic.Anthropic(base_url=base, api_key=key, timeout=TIMEOUT_S)

    def models(self) -> list[dict[str, Any]]:
        """Return the list of models; none where the key is refused."""
        try:
            return [{"id": m.id, **(m.model_extra or {})} for m in self._openai.models.list()]
        except openai.AuthenticationError:
            return []

    def ask(self, wanted: Mapping[str, Any]) -> Answer:
        """Ask one client for one answer; raises the client's own error.

        Args:
            wanted: ``client``, ``model``, ``prompt``, and whether ``stream``, ``tools``, ``long``.
        """
        answer = Answer()
        asks: Mapping[str, Callable[[Mapping[str, Any], Answer], None]] = {
            "openai": self._ask_openai,
            "anthropic": self._ask_anthropic,
            "litellm": self._ask_litellm,
            "llm": self._ask_llm,
        }
        asks[wanted["client"]](wanted, answer)
        return answer

    def _ask_openai(self, wanted: Mapping[str, Any], answer: Answer) -> None:
        body = _chat_body(wanted)
        create: Any = self._openai.chat.completions.create  # its types know no made-up body
        self._read_openai(create(**body), wanted, answer)

    def _ask_litellm(self, wanted: Mapping[str, Any], answer: Answer) -> None:
        body = _chat_body(wanted) | {"model": f"openai/{wanted['model']}"}
        found = litellm.completion(
            **body, api_base=f"{self._base}/v1", api_key=self._key, timeout=TIMEOUT_S
        )
        self._read_openai(found, wanted, answer)

    @staticmethod
    def _read_openai(found: Any, wanted: Mapping[str, Any], answer: Answer) -> None:
        if not wanted["stream"]:
            message = found.choices[0].message
            answer.add(message.content, (c.function.name for c in message.tool_calls or ()))
            return
        for piece in found:
            for choice in piece.choices:
                calls = choice.delta.tool_calls or ()
                answer.add(choice.delta.content, (c.function and c.function.name for c in calls))

    def _ask_anthropic(self, wanted: Mapping[str, Any], answer: Answer) -> None:
        body: dict[str, Any] = {
            "model": wanted["model"],
            "max_tokens": LONG_TOKENS if wanted["long"] else TOKENS,
            "messages": [{"role": "user", "content": wanted["prompt"]}],
            "stream": wanted["stream"],
        }
        if wanted["tools"]:
            tool = {"name": "weather", "description": DESCRIPTION, "input_schema": PARAMETERS}
            body |= {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 4 * TOKENS}
        if wanted["long"]:
            body |= {"extra_body": LONG}
        found = self._anthropic.messages.create(**body)
        if not wanted["stream"]:
            for block in found.content:
                answer.add(getattr(block, "text", None), [getattr(block, "name", None)])
            return
        for event in found:
            if event.type == "content_block_start":
                answer.add(None, [getattr(event.content_block, "name", None)])
            elif event.type == "content_block_delta":
                answer.add(getattr(event.delta, "text", None))

    def _ask_llm(self, wanted: Mapping[str, Any], answer: Answer) -> None:
        argv = [self._llm, "prompt", "-m", f"box-{wanted['model']}", "--no-log"]
        argv += ["-o", "max_tokens", str(LONG_TOKENS if wanted["long"] else TOKENS)]
        argv += [] if wanted["stream"] else ["--no-stream"]
        argv += ["--functions", FUNCTION, "--tools-debug"] if wanted["tools"] else []
        done = subprocess.run(
            [*argv, wanted["prompt"]],
            stdin=subprocess.DEVNULL,  # else it waits for more of the prompt
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip())
        answer.add(done.stdout, ["weather"] if "weather" in done.stderr else ())


def _chat_body(wanted: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": wanted["model"],
        "messages": [{"role": "user", "content": wanted["prompt"]}],
        "max_tokens": LONG_TOKENS if wanted["long"] else TOKENS,
        "stream": wanted["stream"],
    }
    if wanted["long"]:
        body |= {"extra_body": LONG}
    if wanted["tools"]:
        function = {"name": "weather", "description": DESCRIPTION, "parameters": PARAMETERS}
        tools = [{"type": "function", "function": function}]
        body |= {"tools": tools, "tool_choice": "required", "max_tokens": 4 * TOKENS}
    return body


def main() -> None:
    """Answer asks until stdin ends."""
    clients = Clients(sys.argv[1], os.environ["BOX_KEY"], sys.argv[2])
    writing = threading.Lock()

    def say(**fields: object) -> None:
        with writing:
            sys.stdout.write(json.dumps(fields) + "\n")
            sys.stdout.flush()

    def answer(wanted: Mapping[str, Any]) -> None:
        began = time.monotonic()
        told: dict[str, object] = {"id": wanted["id"], "error": None, "kind": None}
        try:
            found = clients.ask(wanted)
            told |= {"text": found.text, "tools": found.tools, "pieces": found.pieces}
        except Exception as error:  # noqa: BLE001  # whatever a client raises is what it shows
            told |= {"error": str(error), "kind": type(error).__name__}
        say(**told, took_s=time.monotonic() - began)

    say(models=clients.models())
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for line in sys.stdin:
            pool.submit(answer, json.loads(line))


if __name__ == "__main__":
    main()
