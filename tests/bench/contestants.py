"""What stands between a client and the fast engine: nothing, nginx, the gateway, a plain relay."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from appliance.adapters.gateway_file import GATEWAY_FILE
from appliance.adapters.gateway_file import encode as encode_configuration
from appliance.adapters.manifest import MANIFEST
from appliance.adapters.manifest import encode as encode_manifest
from appliance.domain.gateway import Configuration, Standing, State
from appliance.domain.profile import Endpoint
from appliance.gateway.table import STATE_FILE
from appliance.planning.gateway_state import encode_state
from tests.bench.debian import Tools
from tests.bench.load import free_port
from tests.bench.native import program
from tests.fakes.unit_specs import made

START_S = 15.0

# One worker, as the gateway is one process; connections kept on both sides; no logs, nothing
# but the relay.
_NGINX = """{user}
daemon off;
worker_processes 1;
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
      proxy_http_version 1.1;
      proxy_set_header Connection "";
    }}
  }}
}}
"""


@contextmanager
def engine() -> Iterator[int]:
    """The fast engine; its port."""
    port = free_port()
    with _running([str(program("engine")), str(port)], port):
        yield port


@contextmanager
def nginx(tools: Tools, engine_port: int, folder: Path) -> Iterator[int]:
    """An nginx with a configuration of its own; its port."""
    port = free_port()
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(
        _NGINX.format(user=user, folder=folder, engine=engine_port, port=port), encoding="ascii"
    )
    command = [str(tools.nginx), "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
    with _running(command, port, environment=tools.environment):
        yield port


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The gateway as a process."""

    port: int
    pid: int


@contextmanager
def gateway(engine_port: int, folder: Path) -> Iterator[Gateway]:
    """The gateway's process as its unit runs it, with one profile that serves."""
    port = free_port()
    for place in ("applied", "run", "state"):
        (folder / place).mkdir()
    configuration = Configuration(port=port, state_dir=str(folder / "state"), log_level="warning")
    (folder / "applied" / GATEWAY_FILE).write_text(encode_configuration(configuration, "1"))
    profile = made("fast", "gpu-0", endpoint=Endpoint(port=engine_port))
    (folder / "applied" / MANIFEST).write_text(encode_manifest({"fast": profile}, "1"))
    state = State(standings={"fast": Standing.SERVING}, committed=("fast",))
    (folder / "run" / STATE_FILE).write_text(json.dumps(encode_state(state)))
    environment = os.environ | {
        "APPLIANCE_APPLIED_DIR": str(folder / "applied"),
        "RUNTIME_DIRECTORY": str(folder / "run"),
    }
    command = [sys.executable, "-m", "appliance.gateway"]
    with _running(command, port, environment=environment) as process:
        yield Gateway(port=port, pid=process.pid)


@contextmanager
def plain_relay(engine_port: int) -> Iterator[int]:
    """An uvicorn with an application that relays through httpx; its port."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "tests.bench.relay:app", "--port", str(port)]
    command += ["--log-level", "error", "--no-access-log", "--loop", "uvloop"]
    environment = os.environ | {"RELAY_TO": f"http://127.0.0.1:{engine_port}"}
    with _running([*command, "--http", "httptools"], port, environment=environment):
        yield port


@contextmanager
def _running(
    command: Sequence[str], port: int, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process from when it takes connections until it has been ended."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        _await_port(process, port)
        yield process
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
