"""Gateway process with systemd around it: sockets, notices, signals, hand-over."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import pytest

from appliance.model.errors import LaneBusyError
from appliance.model.gateway import Configuration, Key, Standing, State
from appliance.model.profile import Endpoint
from appliance.system.applied.manifest import (
    GATEWAY_FILE,
    MANIFEST,
    encode_configuration,
    encode_manifest,
)
from appliance.system.credential_files import FileKeys
from appliance.system.front_client import FrontClient
from appliance.system.lane_client import SocketProbeLane
from appliance.wire.gateway import encode_state
from appliance.wire.lane import LaneOutcome
from tests.fakes.unit_specs import made
from tests.waiting import settle, until

ROOT = Path(__file__).parents[3]
PROGRAM = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
for place, given in enumerate(os.environ.pop("GIVEN", "").split()):
    os.dup2(int(given), 3 + place)
    os.close(int(given))
    os.environ["LISTEN_PID"] = str(os.getpid())
from appliance.gateway.process import main
sys.exit(main(sys.argv[1:]))
"""
SERVING = State(standings={"m": Standing.SERVING}, committed=("m",))
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
BODY = b'{"model":"m","stream":true}'


class Engine:
    """Engine that streams ten events, and ends when a test wants."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.heads: list[bytes] = []
        self.may_end = asyncio.Event()
        """Event for which a stream that begins now waits before its end."""
        self.may_end.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Respond to every request on a connection."""
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                await self._answer(writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.connections -= 1

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        may_end = self.may_end
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        for number in range(10):
            writer.write(
                b"%x\r\n%s\r\n" % (len(b"data: %d\n\n" % number), b"data: %d\n\n" % number)
            )
            await writer.drain()
        await may_end.wait()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


class Systemd:
    """Stand-in for systemd: listening sockets, and a receiver of notices."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.root = root
        for name in ("applied", "run", "state", "credentials"):
            (root / name).mkdir()
        self.front = listening("127.0.0.1")
        self.port: int = self.front.getsockname()[1]
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(str(root / "door"))
        self.door.listen()
        self.lane = socket.socket(socket.AF_UNIX)
        self.lane.bind(str(root / "lane.sock"))
        self.lane.listen()
        self.page = socket.socket(socket.AF_UNIX)
        self.page.bind(str(root / "prompt.sock"))
        self.page.listen()
        self.ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.ear.bind(str(root / "ear"))
        self.kept: list[socket.socket] = []
        self.configuration = Configuration(
            port=self.port,
            state_dir=str(root / "state"),
            request_socket=str(root / "request"),
            **changes,  # type: ignore[arg-type]  # a test names real fields
        )
        self.configure(self.configuration)

    def configure(self, configuration: Configuration) -> None:
        """Write the files that apply would write."""
        text = encode_configuration(configuration, "1")
        (self.root / "applied" / GATEWAY_FILE).write_text(text)

    def profile(self, engine: Engine, state: State = SERVING) -> None:
        """A profile that serves."""
        applied = made("m", "gpu-0", endpoint=Endpoint(port=engine.port))
        (self.root / "applied" / MANIFEST).write_text(encode_manifest({"m": applied}, "1"))
        (self.root / "run" / "state.json").write_text(json.dumps(encode_state(state)))

    async def start(self, journal: IO[bytes] | None = None) -> asyncio.subprocess.Process:
        """Start the service; return when it is ready."""
        sockets = (self.front, self.door, self.lane, self.page, *self.kept)
        passed = [fcntl.fcntl(s, fcntl.F_DUPFD, 60) for s in sockets]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            pass_fds=passed,
            stderr=journal,
            env={
                "GIVEN": " ".join(map(str, passed)),
                "LISTEN_FDS": str(len(passed)),
                "NOTIFY_SOCKET": str(self.root / "ear"),
                "APPLIANCE_APPLIED_DIR": str(self.root / "applied"),
                "RUNTIME_DIRECTORY": str(self.root / "run"),
                "CREDENTIALS_DIRECTORY": str(self.root / "credentials"),
                "PATH": os.environ["PATH"],
            },
        )
        for fd in passed:
            os.close(fd)
        await self.told("READY=1")
        return process

    async def told(self, line: str) -> dict[str, str]:
        """Return the next notice with this assignment, or the beginning of one."""
        async with asyncio.timeout(20):
            while True:
                for message in self.heard():
                    if any(f"{k}={v}".startswith(line) for k, v in message.items()):
                        return message
                await self._spoken_to()

    async def hand_over(self, process: asyncio.subprocess.Process) -> int:
        """Have a gateway hand over, and return the pid of the process that takes over."""
        process.send_signal(signal.SIGHUP)
        return int((await self.told("MAINPID="))["MAINPID"])

    async def _spoken_to(self) -> None:
        """Wait for a notice."""
        spoken_to, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_reader(self.ear, spoken_to.set)
        try:
            await spoken_to.wait()
        finally:
            loop.remove_reader(self.ear)

    async def keys_read(self) -> None:
        """Wait until the process has read its keys once more: it reads them before each notice."""
        list(self.heard())
        for _ in range(2):
            await self.told("WATCHDOG=1")

    def heard(self) -> Iterator[dict[str, str]]:
        """Return the notices since the last call; sockets are kept."""
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self.ear, 4096, 4)
            except BlockingIOError:
                return
            self.kept += [socket.socket(fileno=fd) for fd in descriptors]
            yield dict(line.split("=", 1) for line in data.decode().splitlines())

    def front_of(self, pid: int) -> bool:
        """Tell whether a process could accept clients."""
        wanted = f"socket:[{os.fstat(self.front.fileno()).st_ino}]"
        found = set()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()))
        return wanted in found

    def close(self) -> None:
        """Close all sockets."""
        for one in (self.front, self.door, self.lane, self.page, self.ear, *self.kept):
            one.close()


def listening(address: str, port: int = 0) -> socket.socket:
    """Socket as a socket unit opens it."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((address, port))
    found.listen(64)
    return found


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine that streams."""
    found = Engine()
    server = await asyncio.start_server(found.serve, "127.0.0.1")
    found.port = server.sockets[0].getsockname()[1]
    yield found
    server.close()
    found.may_end.set()
    await until(lambda: not found.connections)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    """Surroundings for a gateway process."""
    found = Systemd(tmp_path, stop_s=0.2)
    yield found
    found.close()


async def asked(port: int, headers: bytes = b"", address: str = "127.0.0.1") -> bytes:
    """Return the whole response to one streaming request."""
    reader, writer = await asyncio.open_connection(address, port)
    request = REQUEST % (len(BODY), BODY)
    writer.write(
        request.replace(
            b"Host: localhost\r\n", b"Host: localhost\r\nConnection: close\r\n" + headers
        )
    )
    try:
        return await reader.read()
    finally:
        writer.close()


async def listed(port: int) -> bytes:
    """Return the response with the list of models."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()


def events(answer: bytes) -> list[bytes]:
    """The data of every event."""
    return [line for line in answer.split(b"\n") if line.startswith(b"data: ")]


WHOLE = [b"data: %d" % number for number in range(10)]


async def ended(process: asyncio.subprocess.Process, within_s: float = 15) -> int:
    """Return the exit status of a process."""
    async with asyncio.timeout(within_s):
        return await process.wait()


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Stop a process at the end of a test."""
    process.terminate()
    assert await ended(process) == 0


async def test_what_systemd_hands_over_is_served(systemd: Systemd, engine: Engine) -> None:
    """The inherited port is served, the status names what serves, and SIGTERM ends the process."""
    systemd.profile(engine)
    process = await systemd.start()
    assert events(await asked(systemd.port)) == WHOLE
    assert (await systemd.told("STATUS=m serves · 0 in flight"))["WATCHDOG"] == "1"
    process.terminate()
    told = await systemd.told("STOPPING=1")
    assert told["STATUS"].startswith("stopping: at most 0.2 s")
    assert told["EXTEND_TIMEOUT_USEC"] == "10200000"
    assert await ended(process) == 0


async def test_the_supervisor_gets_through(systemd: Systemd, engine: Engine) -> None:
    """A state on the control socket is in force and in the status at once."""
    systemd.profile(engine)
    process = await systemd.start()
    reader, writer = await asyncio.open_unix_connection(str(systemd.root / "door"))
    request = {"verb": "route", "state": encode_state(State())}
    writer.write(json.dumps(request).encode() + b"\n")
    assert json.loads(await reader.readline()) == {"ok": True}
    writer.close()
    await systemd.told("STATUS=nothing serves")
    await stopped(process)


async def test_the_page_is_a_client_without_a_key(tmp_path: Path, engine: Engine) -> None:
    """The web process has checked who asks, so it needs no key where every other client does; also after a hand-over."""
    systemd = Systemd(tmp_path, stop_s=0.2, keys_always=True)
    try:
        systemd.profile(engine)
        engine.may_end.set()
        process = await systemd.start()
        client = FrontClient("localhost", 8010, path=tmp_path / "prompt.sock")

        async def asked_by_page() -> int | None:
            end = await client.post(
                "/v1/chat/completions", {"stream": True}, lambda _piece, _s: None, timeout_s=20
            )
            return end.status

        assert await asked_by_page() == 200
        assert b"key_missing" in await asked(systemd.port)
        successor = await systemd.hand_over(process)
        await process.wait()
        assert await asked_by_page() == 200
        os.kill(successor, signal.SIGTERM)
        await until(lambda: not Path(f"/proc/{successor}").exists())
    finally:
        systemd.close()


async def test_profiles_are_followed_without_a_supervisor(systemd: Systemd, engine: Engine) -> None:
    """A profile that `apply` removes leaves the list of models although nobody tells the gateway of it."""
    systemd.profile(engine)
    process = await systemd.start()
    assert b'"id":"m"' in await listed(systemd.port)
    # The supervisor is down: the manifest is all that the gateway can see.
    (systemd.root / "applied" / MANIFEST).write_text(encode_manifest({}, "1"))
    await systemd.keys_read()
    assert b'"data":[]' in await listed(systemd.port)
    systemd.profile(engine)
    await systemd.keys_read()
    assert b'"id":"m"' in await listed(systemd.port)
    await stopped(process)


async def test_a_stop_cuts_what_takes_too_long_and_says_so(
    systemd: Systemd, engine: Engine
) -> None:
    """A stop gives a stream a few seconds, and then an error event."""
    engine.may_end.clear()
    systemd.profile(engine)
    process = await systemd.start()
    asking = asyncio.ensure_future(asked(systemd.port))
    await systemd.told("STATUS=m serves · 1 in flight")
    process.terminate()
    answer = await asking
    assert b"being restarted" in answer
    assert answer.endswith(b"0\r\n\r\n")
    assert await ended(process) == 0


async def test_newcomers_wait_for_the_next_process(systemd: Systemd, engine: Engine) -> None:
    """Between two processes no client is refused: the socket is systemd's."""
    systemd.profile(engine)
    process = await systemd.start()
    process.kill()
    await ended(process)
    asking = asyncio.ensure_future(asked(systemd.port))
    await settle()
    assert not asking.done()
    process = await systemd.start()
    assert events(await asking) == WHOLE
    await stopped(process)


async def test_another_process_takes_over_without_a_loss(systemd: Systemd, engine: Engine) -> None:
    """On SIGHUP a stream goes on in the old process while the new one answers at once."""
    long_may_end = engine.may_end = asyncio.Event()
    systemd.profile(engine)
    process = await systemd.start()
    long = asyncio.ensure_future(asked(systemd.port))
    await systemd.told("STATUS=m serves · 1 in flight")
    new = await systemd.hand_over(process)
    assert new != process.pid
    await systemd.told("STATUS=m serves · 0 in flight")
    engine.may_end = asyncio.Event()
    engine.may_end.set()
    assert events(await asked(systemd.port)) == WHOLE
    assert process.returncode is None
    assert systemd.front_of(new)
    await until(lambda: not systemd.front_of(process.pid))
    long_may_end.set()
    assert events(await long) == WHOLE
    assert await ended(process) == 0
    os.kill(new, signal.SIGTERM)
    await systemd.told("STOPPING=1")


async def probed(systemd: Systemd) -> str:
    """Send a probe through the lane; return its outcome, or why it was not admitted."""
    lane = SocketProbeLane(systemd.root / "lane.sock")
    try:
        async with lane.send("m", "/v1/completions", {"stream": True}, timeout_s=20) as response:
            assert [piece async for piece, _ in response.chunks()]
    except LaneBusyError as error:
        return str(error)
    return str(response.outcome)


async def test_a_probe_ends_before_another_process_takes_over(
    systemd: Systemd, engine: Engine
) -> None:
    """On SIGHUP the probe yields; the new process admits the next one."""
    engine.may_end.clear()
    systemd.profile(engine)
    process = await systemd.start()
    probing = asyncio.ensure_future(probed(systemd))
    await until(lambda: engine.heads)
    new = await systemd.hand_over(process)
    await systemd.told("READY=1")
    assert await probing == LaneOutcome.YIELDED
    assert await ended(process) == 0
    engine.may_end.set()
    assert await probed(systemd) == LaneOutcome.ENDED
    os.kill(new, signal.SIGTERM)
    await systemd.told("STOPPING=1")


async def test_no_probe_beside_requests_of_the_old_process(
    systemd: Systemd, engine: Engine
) -> None:
    """The new process admits no probe until the old one has ended its last stream."""
    long_may_end = engine.may_end = asyncio.Event()
    systemd.profile(engine)
    process = await systemd.start()
    long = asyncio.ensure_future(asked(systemd.port))
    await systemd.told("STATUS=m serves · 1 in flight")
    new = await systemd.hand_over(process)
    await systemd.told("READY=1")
    await until(lambda: not systemd.front_of(process.pid))
    engine.may_end = asyncio.Event()
    engine.may_end.set()
    assert await probed(systemd) == "requests of the replaced gateway process are not over"
    long_may_end.set()
    assert events(await long) == WHOLE
    assert await ended(process) == 0
    assert await probed(systemd) == LaneOutcome.ENDED
    os.kill(new, signal.SIGTERM)
    await systemd.told("STOPPING=1")


async def test_who_waits_in_the_old_process_hears_of_changes(
    systemd: Systemd, engine: Engine
) -> None:
    """A state that the new process gets releases requests that the old one holds."""
    coming = State(standings={"m": Standing.STARTING}, target=("m",))
    systemd.profile(engine, coming)
    process = await systemd.start()
    held = asyncio.ensure_future(asked(systemd.port))
    await systemd.told("STATUS=nothing serves · 0 in flight · 1 waiting")
    new = await systemd.hand_over(process)
    await systemd.told("READY=1")
    reader, writer = await asyncio.open_unix_connection(str(systemd.root / "door"))
    writer.write(json.dumps({"verb": "route", "state": encode_state(SERVING)}).encode() + b"\n")
    assert json.loads(await reader.readline()) == {"ok": True}
    writer.close()
    assert events(await held) == WHOLE
    assert await ended(process) == 0
    os.kill(new, signal.SIGTERM)
    await systemd.told("STOPPING=1")


async def test_a_process_that_does_not_come_up_changes_nothing(
    systemd: Systemd, engine: Engine
) -> None:
    """The old process goes on, a probe has ended all the same, and a later SIGHUP starts another."""
    engine.may_end.clear()
    systemd.profile(engine)
    with (systemd.root / "journal").open("wb") as journal:
        process = await systemd.start(journal)
    (systemd.root / "applied" / GATEWAY_FILE).write_text("{")
    probing = asyncio.ensure_future(probed(systemd))
    await until(lambda: engine.heads)
    process.send_signal(signal.SIGHUP)
    await until(lambda: "the hand-over failed" in (systemd.root / "journal").read_text())
    engine.may_end.set()
    assert await probing == LaneOutcome.YIELDED
    assert events(await asked(systemd.port)) == WHOLE
    assert await probed(systemd) == LaneOutcome.ENDED
    systemd.configure(systemd.configuration)
    new = await systemd.hand_over(process)
    assert await ended(process) == 0
    os.kill(new, signal.SIGTERM)
    await systemd.told("STOPPING=1")


async def test_a_draining_process_can_be_told_to_end(systemd: Systemd, engine: Engine) -> None:
    """A stop after a reload cuts what the old process still has, with an error."""
    engine.may_end.clear()
    systemd.profile(engine)
    process = await systemd.start()
    long = asyncio.ensure_future(asked(systemd.port))
    await systemd.told("STATUS=m serves · 1 in flight")
    new = await systemd.hand_over(process)
    for pid in (process.pid, new):
        os.kill(pid, signal.SIGTERM)
    assert b"being restarted" in await long
    assert await ended(process) == 0


async def test_an_address_beyond_needs_a_key(tmp_path: Path, engine: Engine) -> None:
    """Remote clients are served from the first key on, and only with a key."""
    if (address := own_address()) is None:
        pytest.skip("this machine has no address but loopback: that others need a key is not shown")
    systemd = Systemd(tmp_path, addresses=("127.0.0.1", address), stop_s=0.2)
    systemd.profile(engine)
    process = await systemd.start()
    assert [s.getsockname() for s in systemd.kept] == [(address, systemd.port)]
    with contextlib.suppress(ConnectionError):
        assert await asked(systemd.port, address=address) == b""
    text, _ = FileKeys(tmp_path / "state").add(Key(name="phone"), 1.0)
    await systemd.keys_read()
    assert b"401" in (await asked(systemd.port, address=address)).split(b"\r\n")[0]
    right = f"Authorization: Bearer {text}\r\n".encode()
    assert events(await asked(systemd.port, right, address=address)) == WHOLE
    assert events(await asked(systemd.port)) == WHOLE
    wrong = right[:-3] + b"\r\n"
    assert b"401" in (await asked(systemd.port, wrong)).split(b"\r\n")[0]
    process.kill()
    await ended(process)
    process = await systemd.start()
    assert events(await asked(systemd.port, right, address=address)) == WHOLE
    await stopped(process)
    systemd.close()


async def test_pages_from_elsewhere_need_a_key(systemd: Systemd, engine: Engine) -> None:
    """A web page in a browser on this machine needs a key."""
    systemd.profile(engine)
    process = await systemd.start()
    page = b"Origin: https://evil.example\r\n"
    assert b"origin_refused" in await asked(systemd.port, page)
    text, _ = FileKeys(systemd.root / "state").add(Key(name="phone"), 1.0)
    await systemd.keys_read()
    key = f"Authorization: Bearer {text}\r\n".encode()
    assert events(await asked(systemd.port, page + key)) == WHOLE
    assert events(await asked(systemd.port, b"Origin: http://localhost:3000\r\n")) == WHOLE
    await stopped(process)


async def test_an_engine_sees_its_own_key_and_no_others(systemd: Systemd, engine: Engine) -> None:
    """The engine's credential replaces the key that the client has sent."""
    systemd.profile(engine)
    (systemd.root / "credentials" / "engine-key.m").write_text("s3cret\n")
    text, _ = FileKeys(systemd.root / "state").add(Key(name="phone"), 1.0)
    process = await systemd.start()
    headers = f"Authorization: Bearer {text}\r\nX-Api-Key: {text}\r\n".encode()
    assert events(await asked(systemd.port, headers)) == WHOLE
    (head,) = engine.heads
    assert head.lower().count(b"authorization: bearer s3cret\r\n") == 1
    assert text.encode() not in head
    assert b"api-key" not in head.lower()
    await stopped(process)


def own_address() -> str | None:
    """Return an address of this machine that is not loopback; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


def test_modules_that_the_gateway_does_not_use_are_not_loaded() -> None:
    """The process is small: temporary directories, archives and compressors stay out of it."""
    code = "import sys, appliance.gateway.process; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    unused = {
        "backports.zstd",
        "tempfile",
        "shutil",
        "lzma",
        "random",
        "secrets",
        "pydantic",
        "httpx",
    }
    assert not unused & set(done.stdout.split())
