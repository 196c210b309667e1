"""The reader of streams that judges the gateway: it notices what a relay does to a stream."""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.bench.contestants import engine
from tests.bench.load import Contestant, streamed

Spoil = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def fast() -> Iterator[Contestant]:
    """The fast engine."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the engine and the reader; they stay unproved")
    with engine() as found:
        yield found


def test_a_stream_that_is_whole_passes(fast: Contestant) -> None:
    """Read directly, every event is there, in order and on time."""
    read = streamed(fast, streams=8, chunks=20, every_us=2000)
    assert (read.streams, read.corrupt, read.events) == (8, 0, 160)
    assert 0 <= read.p50_ms <= read.p99_ms <= read.max_ms


def test_cpu_time_is_that_of_the_process_which_was_asked(fast: Contestant) -> None:
    """40,000 events cost their sender some ticks, and somebody who sleeps none."""
    read = streamed(fast, streams=8, chunks=5000, every_us=0)
    assert read.relay_cpu_s > 0
    assert read.cpu_us_per_event == pytest.approx(read.relay_cpu_s / 40_000 * 1e6)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        asleep = Contestant(port=fast.port, pid=sleeper.pid)
        assert streamed(asleep, streams=8, chunks=5000, every_us=0).relay_cpu_s == 0
        sleeper.kill()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data.replace(b'"pad":"0', b'"pad":"1', 1), "the checksum"),
        (lambda data: data.replace(b'"seq":3', b'"seq":4', 1), "an event is out of order"),
        (lambda data: data.replace(b"0\r\n\r\n", b""), "closed before its end"),
        (lambda data: data.replace(b"200 OK", b"503 No"), "another status"),
        (lambda data: data.replace(b"[DONE]", b"[done]"), "an unknown event"),
        (lambda data: data.replace(b"\r\n0\r\n\r\n", b"\r\n0\r\n\r\nX"), "bytes after the end"),
    ],
)
def test_a_stream_that_is_not_is_counted(fast: Contestant, spoil: Spoil, why: str) -> None:
    """One wrong byte, event, end or status makes a stream corrupt, and it is said why."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        relay = threading.Thread(target=_relay, args=(listener, fast.port, spoil))
        relay.start()
        read = streamed(
            Contestant(port=listener.getsockname()[1], pid=os.getpid()),
            streams=1,
            chunks=20,
            every_us=100,
        )
        relay.join()
    assert read.corrupt == 1
    assert why in read.why


def _relay(listener: socket.socket, engine_port: int, spoil: Spoil) -> None:
    """Relay one answer, spoilt, and hang up."""
    client, _ = listener.accept()
    with client, socket.create_connection(("127.0.0.1", engine_port)) as upstream:
        upstream.sendall(client.recv(1 << 16))
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += upstream.recv(1 << 16)
        with suppress(OSError):
            client.sendall(spoil(answer))
