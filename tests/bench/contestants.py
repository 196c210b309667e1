"""Contestants between a client and the fast engine: none, nginx, the gateway, a plain relay."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from appliance.gateway.routing_table import STATE_FILE
from appliance.model.gateway import Configuration, Key, Standing, State
from appliance.model.profile import Endpoint
from appliance.system.applied.manifest import (
    GATEWAY_FILE,
    MANIFEST,
    encode_configuration,
    encode_manifest,
)
from appliance.system.credential_files import FileKeys
from appliance.wire.gateway import encode_state
from tests.bench.debian import Tools
from tests.bench.load import Contestant, free_port
from tests.bench.native import program
from tests.fakes.certificates import self_signed
from tests.fakes.unit_specs import made

START_S = 15.0
_UNIT = Path(__file__).parents[2] / "units" / "appliance-gateway.service"


# One process, as the gateway is one; connections kept on both sides; no logs, nothing
# but the relay.
_NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{engine}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine;
      proxy_buffering {buffering};
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


@contextmanager
def engine() -> Iterator[Contestant]:
    """The fast engine."""
    port = free_port()
    with _running([str(program("engine")), str(port)], port) as found:
        yield found


@contextmanager
def nginx(
    tools: Tools, engine_port: int, folder: Path, *, buffering: bool = True
) -> Iterator[Contestant]:
    """An nginx with a configuration of its own.

    Args:
        tools: Where it is.
        engine_port: Of its engine.
        folder: For its files; made where it is missing.
        buffering: As by default; without, it passes on what comes when it comes, as streams need.
    """
    port = free_port()
    folder.mkdir(exist_ok=True)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(
            folder=folder,
            engine=engine_port,
            port=port,
            buffering="on" if buffering else "off",
        ),
        encoding="ascii",
    )
    command = [str(tools.nginx), "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
    with _running(command, port, environment=tools.environment) as found:
        yield found


@contextmanager
def sink() -> Iterator[Contestant]:
    """The engine that takes anything."""
    port = free_port()
    with _running([sys.executable, "-m", "tests.bench.sink", str(port)], port) as found:
        yield found


@contextmanager
def gateway(
    engine_port: int,
    folder: Path,
    others: Mapping[str, int] | None = None,
    tls_address: str | None = None,
) -> Iterator[Contestant]:
    """The gateway's process as its unit runs it, with one profile that serves.

    Args:
        engine_port: Of its engine.
        folder: For the gateway's files.
        others: Further profiles with their engines' ports; those of port 0 are on their way and do
            not come.
        tls_address: Of this machine, beyond loopback, where it serves TLS too; None: nowhere.
    """
    port = free_port()
    for place in ("applied", "run", "state"):
        (folder / place).mkdir()
    configuration = Configuration(
        port=port,
        state_dir=str(folder / "state"),
        log_level="warning",
        addresses=("127.0.0.1", tls_address) if tls_address else ("127.0.0.1",),
        tls=tls_address is not None,
    )
    if tls_address:
        self_signed(folder)
        FileKeys(folder / "state").add(Key(name="someone"), 0.0)
    (folder / "applied" / GATEWAY_FILE).write_text(encode_configuration(configuration, "1"))
    profile = made("fast", "gpu-0", endpoint=Endpoint(port=engine_port))
    ports = dict(others or {})
    more = {name: made(name, endpoint=Endpoint(port=at or 1)) for name, at in ports.items()}
    profiles = {"fast": profile, **more}
    (folder / "applied" / MANIFEST).write_text(encode_manifest(profiles, "1"))
    standings = {n: Standing.SERVING if at else Standing.STARTING for n, at in ports.items()}
    standings["fast"] = Standing.SERVING
    state = State(standings=standings, committed=("fast",))
    (folder / "run" / STATE_FILE).write_text(json.dumps(encode_state(state)))
    lines = _UNIT.read_text(encoding="utf-8").splitlines()
    said = [line.partition("=")[2] for line in lines if line.startswith("Environment=")]
    environment = {
        **os.environ,
        **dict(text.split("=", 1) for text in said),
        "APPLIANCE_APPLIED_DIR": str(folder / "applied"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
        "CREDENTIALS_DIRECTORY": str(folder),
    }
    command = [sys.executable, "-m", "appliance.gateway"]
    with _running(command, port, environment=environment) as found:
        yield found


@contextmanager
def plain_relay(engine_port: int) -> Iterator[Contestant]:
    """An uvicorn with an application that relays through httpx."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.bench.relay:app", "--port", str(port)]
    command += ["--log-level", "error", "--no-access-log", "--loop", "uvloop"]
    environment = os.environ | {"RELAY_TO": f"http://127.0.0.1:{engine_port}"}
    command += ["--http", "httptools"]
    with _running(command, port, environment=environment) as found:
        yield found


@contextmanager
def _running(
    command: Sequence[str], port: int, *, environment: Mapping[str, str] | None = None
) -> Iterator[Contestant]:
    """A process from when it takes connections until it has been ended."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        _await_port(process, port)
        yield Contestant(port=port, pid=process.pid)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        process.kill()
        process.wait()


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    sys.exit(f"no figures: {process.args!r} does not take connections")
