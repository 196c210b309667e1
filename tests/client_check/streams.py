"""Streams with all that the gateway adds to them, as the clients that are installed decode them."""

import json
import subprocess
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from tests.bench.machine import say
from tests.fakes.added_streams import PATHS, TEXTS, AddedStream, added_streams


class _Served(BaseHTTPRequestHandler):
    """Answers with the stream that `model` names."""

    streams: ClassVar[dict[str, AddedStream]] = {}

    def do_POST(self) -> None:
        """Answer one request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(self.streams[asked["model"]].body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def check_decoding(programs: Sequence[Sequence[str | Path]]) -> tuple[int, int]:
    """Have clients decode each stream; return the numbers of decodings and of faults.

    Args:
        programs: Commands of the clients' programs, without their argument.
    """
    apis = {}
    for api in PATHS:
        for number, stream in enumerate(added_streams(api)):
            model = f"{api}-{number}"
            _Served.streams[model], apis[model] = stream, api
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Served)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    decodings = failed = 0
    for program in programs:
        done = subprocess.run(
            [*program, f"http://127.0.0.1:{server.server_port}"],
            input=json.dumps(apis),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        for client, outcomes in json.loads(done.stdout).items():
            faults = [
                fault
                for model, (text, error) in outcomes.items()
                if (fault := _fault(_Served.streams[model], text, error))
            ]
            decodings, failed = decodings + len(outcomes), failed + len(faults)
            say(f"  {'✗' if faults else '✓'} {client}: {len(outcomes)} streams")
            for fault in faults[:_SHOWN_FAULTS]:
                say(f"      {fault}")
    server.shutdown()
    server.server_close()
    return decodings, failed


_SHOWN_FAULTS = 5


def _fault(stream: AddedStream, text: str, error: str) -> str:
    """Return what is wrong with a client's text and error; empty: nothing is."""
    # Some clients print the body, in which quotes are escaped.
    good = stream.shown in error.replace('\\"', '"') if stream.shown else not error
    if good and text == "".join(TEXTS[: stream.events]):
        return ""
    return f"{stream.name}: {text!r}, {error or 'no error'}"
