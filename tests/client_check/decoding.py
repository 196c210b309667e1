"""Streams as the SDKs of OpenAI and Anthropic decode them. Runs where the clients are installed.

Reads one JSON object from stdin, the body of a stream by its case, ``PATH what``; serves them on
loopback, has the SDK of each path ask for them, and writes what it handed out and raised.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import anthropic
import openai

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "stream": True}


class Served(BaseHTTPRequestHandler):
    """Answers with the body of the case that `model` names."""

    bodies: ClassVar[dict[str, str]] = {}

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.bodies[asked["model"]].encode())

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def pieces(base: str, case: str) -> Any:
    """Return the stream of a case."""
    path = case.partition(" ")[0]
    if path == "/v1/messages":
        claude = anthropic.Anthropic(base_url=base, api_key="x", max_retries=0)
        return claude.messages.create(model=case, max_tokens=9, **ASKED)
    client = openai.OpenAI(base_url=f"{base}/v1", api_key="x", max_retries=0)
    if path == "/v1/chat/completions":
        return client.chat.completions.create(model=case, **ASKED)
    if path == "/v1/completions":
        return client.completions.create(model=case, prompt="hello", stream=True)
    return client.responses.create(model=case, input="hello", stream=True)


def main() -> None:
    """Ask for each case, and write the outcomes."""
    Served.bodies = json.load(sys.stdin)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = {}
    for case in Served.bodies:
        got, error = 0, ""
        try:
            for piece in pieces(f"http://127.0.0.1:{server.server_port}", case):
                got += getattr(piece, "id", None) != "waiting"
        except (openai.APIError, anthropic.APIError) as raised:
            error = str(raised)
        except Exception as raised:  # noqa: BLE001 - a client that fails at what it was sent
            error = f"FAILS: {raised!r}"
        found[case] = [got, error]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
