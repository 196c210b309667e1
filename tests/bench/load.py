"""The clients of the gateway's figures: wrk, the reader of streams, and one that hardly reads."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from appliance.launch.readiness import Sample
from tests.bench.debian import Tools
from tests.bench.native import program, script

PATH = "/v1/chat/completions"
# More than any buffer on the way holds: kernels keep up to 6 MB a connection.
_LONG = {"model": "fast", "messages": [], "stream": True, "chunks": 1 << 30, "every_us": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One process that listens."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """One run of wrk."""

    requests: int
    requests_s: float
    failed: int
    p50_us: float
    p99_us: float
    relay_cpu_s: float
    """CPU time of the process that was asked, meanwhile."""

    @property
    def cpu_us_per_request(self) -> float:
        """CPU time of that process for one request."""
        return self.relay_cpu_s / max(1, self.requests) * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Streamed:
    """Many streams that were read at once."""

    streams: int
    corrupt: int
    why: str
    events: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    relay_cpu_s: float
    """CPU time of the process that was asked, meanwhile."""

    @property
    def cpu_us_per_event(self) -> float:
        """CPU time of that process for one event, which is one chunk."""
        return self.relay_cpu_s / max(1, self.events) * 1e6


def burst(tools: Tools, relay: Contestant, *, connections: int, seconds: int) -> Burst:
    """Ask for small answers as fast as they come."""
    command = [str(tools.wrk), "--latency", "-t1", f"-c{connections}", f"-d{seconds}s"]
    command += ["-s", str(script("post.lua")), f"http://127.0.0.1:{relay.port}{PATH}"]
    before_s = cpu_s(relay.pid)
    done = subprocess.run(
        command,
        env=tools.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=seconds + 30,
    )
    said = json.loads(done.stdout.splitlines()[-1])
    return Burst(
        requests=said["requests"],
        requests_s=said["requests"] / said["seconds"],
        failed=said["failed"],
        p50_us=said["p50_us"],
        p99_us=said["p99_us"],
        relay_cpu_s=cpu_s(relay.pid) - before_s,
    )


def streamed(relay: Contestant, *, streams: int, chunks: int, every_us: int) -> Streamed:
    """Read that many streams, checking every byte."""
    command = [program("streams"), relay.port, streams, chunks, every_us]
    before_s = cpu_s(relay.pid)
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=True,
        timeout=chunks * every_us / 1e6 + 60,
    )
    return Streamed(**json.loads(done.stdout), relay_cpu_s=cpu_s(relay.pid) - before_s)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, in steps of the kernel's tick (10 ms)."""
    return Sample(0.0, [pid]).cpu_s


def rss_mib(pid: int) -> float:
    """Return the memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


@contextmanager
def slow_clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Clients that have asked for an endless stream and read a byte now and then."""
    body = json.dumps(_LONG).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            for _ in range(count)
        ]
        for client in clients:
            client.sendall(request)
        yield clients


def read_slowly(clients: list[socket.socket], *, seconds: int) -> None:
    """A byte a second from each."""
    for _ in range(seconds):
        for client in clients:
            client.recv(1)
        time.sleep(1.0)


def free_port() -> int:
    """One that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
