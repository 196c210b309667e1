"""Engine that calls a tool wherever one is offered, in OpenAI's API and in Anthropic's. Runs in the box.

A request with the outcome of a tool is answered with that outcome. Standard library only.
"""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
ARGUMENTS = '{"city": "Lyon"}'


class Handler(BaseHTTPRequestHandler):
    """Handler of one connection."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Log nothing: prompts are nobody's business."""

    def do_GET(self) -> None:
        """Answer the health check."""
        self._send("application/json", b"{}")

    def do_POST(self) -> None:
        """Answer a chat in the API of its path."""
        body: Json = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        of_anthropic = self.path == "/v1/messages"
        told = outcome(body)
        if not body.get("stream"):
            answer = message(body, told) if of_anthropic else completion(body, told)
            self._send("application/json", json.dumps(answer).encode())
            return
        events = message_events(body, told) if of_anthropic else chunks(body, told)
        self._send("text/event-stream", "".join(events).encode())

    def _send(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def outcome(body: Json) -> str | None:
    """Return the outcome of the tool in a request; None: it asks for one."""
    last = body["messages"][-1]
    content = last["content"]
    if last["role"] == "tool":
        return content if isinstance(content, str) else content[0]["text"]
    return None if body.get("tools") else "no tool"


def completion(body: Json, told: str | None) -> Json:
    """Return a chat completion."""
    turn: Json = {"role": "assistant", "content": told}
    if told is None:
        function = {"name": body["tools"][0]["function"]["name"], "arguments": ARGUMENTS}
        turn |= {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    end = "tool_calls" if told is None else "stop"
    choice = {"index": 0, "message": turn, "finish_reason": end}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {**_head(body, "chat.completion"), "choices": [choice], "usage": usage}


def chunks(body: Json, told: str | None) -> Iterator[str]:
    """Yield the events of a chat completion that is streamed."""
    whole = completion(body, told)["choices"][0]
    calls = [{"index": 0, **call} for call in whole["message"].get("tool_calls", [])]
    deltas: list[Json] = [{"role": "assistant", "content": told}]
    for call in calls:
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "function": {**function, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}
            for part in (ARGUMENTS[:6], ARGUMENTS[6:])
        ]
    head = _head(body, "chat.completion.chunk")
    for delta in deltas:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    end = {"index": 0, "delta": {}, "finish_reason": whole["finish_reason"]}
    yield _event({**head, "choices": [end]})
    yield "data: [DONE]\n\n"


def message(body: Json, told: str | None) -> Json:
    """Return a message of Anthropic's API."""
    if told is None:
        name = body["tools"][0]["name"]
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": json.loads(ARGUMENTS)}
    else:
        block = {"type": "text", "text": told}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [block],
        "stop_reason": "tool_use" if told is None else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def message_events(body: Json, told: str | None) -> Iterator[str]:
    """Yield the events of a message that is streamed."""
    whole = message(body, told)
    (block,) = whole["content"]
    is_call = block["type"] == "tool_use"
    empty = {**block, "input": {}} if is_call else {**block, "text": ""}
    kind = {"type": "input_json_delta", "partial_json": ARGUMENTS}
    delta = kind if is_call else {"type": "text_delta", "text": told}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\n{_event(event)}"


def _head(body: Json, kind: str) -> Json:
    return {"id": "chat_1", "object": kind, "created": 1, "model": body["model"]}


def _event(document: Json) -> str:
    return f"data: {json.dumps(document)}\n\n"


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
