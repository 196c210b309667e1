"""Cross-check of bench's latencies with aiperf's: the same responses, measured by both.

aiperf sends its requests to a tee, which sends each to a real engine by the client of
`appliance bench`, and passes every piece on as it arrives. TTFT, TPOT and ITL of both must agree
within 3 %. Names differ: aiperf's inter-token latency is TPOT here, its inter-chunk latency ITL.

aiperf (1.2 GB with what it pulls in) is installed into a virtual environment of its own on the first
run. Not among the tests: ``make check-bench``, one to three minutes.
"""

import argparse
import asyncio
import http.client
import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from appliance.speed.bench_plan import Workload, stage_prompt, stages
from appliance.speed.bench_rows import (
    Part,
    RequestRow,
    ResponseObserver,
    latencies_ms,
)
from appliance.system.front_client import FrontClient
from tests.programs import MODEL_S, ROOT, eventually, free_port, program, started

VERSION: Final = "0.13.0"
TOLERANCE: Final = 0.03
MODEL: Final = "small"
TIMEOUT_S: Final = 600
NAMES: Final = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_chunk_latency",
}
"""aiperf's name of each latency."""
_TOKENIZER: Final[Mapping[str, object]] = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
}
"""Tokenizer that aiperf loads and does not use: the engine's own counts are taken. Its own one would
be fetched from the network."""
_PATH: Final = "/v1/chat/completions"
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_NOT_FOUND: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Tee:
    """HTTP server that relays requests to an engine, and keeps bench's row of each."""

    def __init__(self, engine_port: int) -> None:
        self.rows: list[RequestRow] = []
        self._client = FrontClient("127.0.0.1", engine_port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay the one request of a connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"POST " + _PATH.encode()):
                writer.write(_NOT_FOUND)
                return
            fields = dict(
                line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line
            )
            body = json.loads(await reader.readexactly(int(fields[b"content-length"])))
            await self._relay(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _relay(self, body: Any, writer: asyncio.StreamWriter) -> None:
        request = RequestRow(
            profile=MODEL,
            part=Part.SINGLE,
            run=1,
            concurrency=1,
            prompt=str(len(self.rows)),
            sent_s=0.0,
            ended_s=0.0,
        )
        observer = ResponseObserver(request)
        writer.write(_HEAD)

        def take(piece: bytes, at_s: float) -> None:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            observer.feed(piece, at_s)

        end = await self._client.post(_PATH, body, take, timeout_s=TIMEOUT_S)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self.rows.append(observer.row(sent_s=end.sent_s, ended_s=end.ended_s, fault=end.fault))


def installed(folder: Path) -> Path:
    """Return aiperf's program in a virtual environment, which is made if it is missing."""
    found = folder / "bin" / "aiperf"
    if not found.exists():
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"aiperf=={VERSION}"], check=True)
    return found


def tokenizer_in(folder: Path) -> Path:
    """Return the directory of a tokenizer, which is written there."""
    found = folder / "tokenizer"
    found.mkdir()
    (found / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    configuration = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    (found / "tokenizer_config.json").write_text(json.dumps(configuration))
    return found


def prompts(count: int) -> Sequence[str]:
    """Return as many salted prompts of bench."""
    stage = stages(Workload())[1]
    return [
        stage_prompt(stage, number % len(stage.prompts), f"{number:016x}")
        for number in range(count)
    ]


async def measure(aiperf: Path, engine_port: int, folder: Path, flags: argparse.Namespace) -> Tee:
    """Have aiperf send its requests through a tee, and return the tee."""
    tee = Tee(engine_port)
    server = await asyncio.start_server(tee.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dataset = folder / "prompts.jsonl"
    lines = [json.dumps({"text": text}) for text in prompts(flags.requests)]
    dataset.write_text("\n".join(lines) + "\n")
    extra = {"n_predict": flags.tokens, "ignore_eos": True, "cache_prompt": False}
    options = {
        "model": MODEL,
        "url": f"http://127.0.0.1:{port}",
        "endpoint-type": "chat",
        "tokenizer": tokenizer_in(folder),
        "custom-dataset-type": "single_turn",
        "input-file": dataset,
        "request-count": flags.requests,
        "concurrency": flags.concurrency,
        "extra-inputs": json.dumps(extra),
        "connection-reuse-strategy": "never",
        "workers-max": 1,
        "ui": "none",
        "artifact-dir": folder / "artifacts",
    }
    argv = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    async with server:
        process = await asyncio.create_subprocess_exec(
            str(aiperf),
            "profile",
            "--streaming",
            "--use-server-token-count",
            *argv,
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(TIMEOUT_S):
            said, _ = await process.communicate()
        if process.returncode:
            raise SystemExit(said.decode(errors="replace"))
    return tee


def compared(rows: Sequence[RequestRow], theirs: Any) -> dict[str, Any]:
    """Return both tools' means in milliseconds, and how far they differ."""
    ours = latencies_ms(rows)
    found: dict[str, Any] = {}
    for name, foreign in NAMES.items():
        mean, other = ours[f"mean_{name}_ms"], theirs[foreign]["avg"]
        assert mean is not None
        found[name] = {"bench_ms": mean, "aiperf_ms": other, "difference": mean / other - 1}
    return found


def main() -> int:
    """Compare, print the figures, the last line as JSON, and return 1 if they differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--venv", type=Path, default=ROOT / ".cache" / "aiperf")
    flags = parser.parse_args()
    aiperf = installed(flags.venv)
    port = free_port()
    options = ("--ctx", 4096, "--parallel", flags.concurrency, "--threads", 1, "--alias", MODEL)
    with (
        TemporaryDirectory(dir="/var/tmp") as name,
        started(program("embedded", "--port", port, "--model", "smollm2", *options)) as engine,
    ):
        if not eventually(lambda: is_up(port), within_s=MODEL_S):
            raise SystemExit("the engine does not answer")
        folder = Path(name)
        tee = asyncio.run(measure(aiperf, port, folder, flags))
        engine.terminate()
        engine.wait(timeout=30)
        export = folder / "artifacts" / "profile_export_aiperf.json"
        found = compared(tee.rows, json.loads(export.read_text()))
    failed = sum(1 for row in tee.rows if row.error)
    worst = max(abs(one["difference"]) for one in found.values())
    passed = worst <= TOLERANCE and not failed and len(tee.rows) >= flags.requests
    document = {"requests": len(tee.rows), "failed": failed, "aiperf": VERSION, **found}
    print(json.dumps({**document, "worst": worst, "passed": passed}))  # noqa: T201
    return 0 if passed else 1


def is_up(port: int) -> bool:
    """Tell whether the engine has loaded its model."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())
