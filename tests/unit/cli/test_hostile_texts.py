"""Texts of others reach no terminal as something that it obeys, whichever verb shows them."""

import json
import re
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from appliance.cli import terminal
from appliance.cli.grammar import VERBS
from tests.fakes.control_server import FakeSupervisor, Story
from tests.pins.cli_scripts import AS_ROOT, SCRIPTS, Script
from tests.pins.cli_session import CliSession
from tests.pins.frozen_time import utc
from tests.pins.status_box import catalogue_in

HOSTILE: Final = "\x1b]0;own\x07\x1b[2J\x1b[8m\u202eevil\u2066\x9b31m\x00\x85\u200f\x1b"
"""Title, erased screen, concealed text, directions of writing, C1, NUL, a lone ESC."""
_OURS: Final = re.compile(r"\x1b\[(?:0|1|2|3[123]|97;40)m|\r\x1b\[(?:2K|J)|\x1b\[A")
_OWN_TEXTS: Final = frozenset(
    {
        "bench",
        "completion",
        "grammar",
        "logs",
        "profile",
        "supervisor away",
        "version",
        "wait for nothing",
    }
)
"""Scripts that show no sentence of supervisor or health agent."""


def obeyed(text: str) -> list[str]:
    """Return what a terminal obeys or turns around in a text, beside our own styles and redraws."""
    return [c for c in _OURS.sub("", text) if not c.isprintable() and c not in "\n\t"]


def poisoned(value: object) -> object:
    """Return a JSON value with `HOSTILE` in every text that is for people: all with a space."""
    if isinstance(value, str):
        return value.replace(" ", f" {HOSTILE} ", 1)
    if isinstance(value, dict):
        return {key: poisoned(inner) for key, inner in value.items()}
    return [poisoned(inner) for inner in value] if isinstance(value, list) else value


class Wire:
    """Way to a supervisor on which every text becomes hostile."""

    def __init__(self, path: Path, server: Path) -> None:
        self._server = server
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all conversations."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                server.connect(str(self._server))
            except OSError:
                client.close()
                server.close()
                continue
            for source, sink in ((client, server), (server, client)):
                self._threads.append(
                    threading.Thread(
                        target=self._pass,
                        args=(source, sink),
                        kwargs={"is_answer": source is server},
                    )
                )
                self._threads[-1].start()

    def _pass(self, source: socket.socket, sink: socket.socket, *, is_answer: bool) -> None:
        with source, source.makefile("rb") as lines:
            try:
                for line in lines:
                    sink.sendall(self._poisoned(line) if is_answer else line)
                sink.shutdown(socket.SHUT_RDWR if is_answer else socket.SHUT_WR)
            except OSError:
                return

    def _poisoned(self, line: bytes) -> bytes:
        return json.dumps(poisoned(json.loads(line))).encode() + b"\n"


class HostileSession(CliSession):
    """Box whose supervisor, health agent and systemctl tell hostile texts."""

    def measure(self, stories: Mapping[str, Story]) -> None:
        hostile = {
            v: [poisoned(s) if isinstance(s, dict) else s for s in t] for v, t in stories.items()
        }
        self._agents.enter_context(FakeSupervisor(self.files.health_socket, hostile))  # type: ignore[arg-type]


@contextmanager
def hostile_session(script: Script) -> Iterator[HostileSession]:
    with utc(), tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        root = Path(folder)
        it = HostileSession(root, catalogue_in(root), *script.committed)
        it.begin()
        wire = Wire(root / "wire.sock", it.files.socket)
        it.more_environment["APPLIANCE_CONTROL_SOCKET"] = str(root / "wire.sock")
        try:
            yield it
        finally:
            it.end()
            wire.close()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", sorted(SCRIPTS.keys() - AS_ROOT))
def test_no_verb_passes_on_what_a_terminal_obeys(name: str, form: str) -> None:
    """Every verb, on a terminal, with hostile texts from supervisor, health agent, files and programs."""
    shown, words = "", dict.fromkeys(("--json",) if form == "json" else ())
    with hostile_session(SCRIPTS[name]) as it:
        it.has_terminal = True
        it.more_environment |= {"TERM": "xterm", "COLUMNS": "100"}
        for step in SCRIPTS[name].steps:
            if not isinstance(step, str):
                step(it)
            elif not (words and step.startswith("~")):
                verb, *rest = step.lstrip("~<").split()
                done = it.run(verb, *words, *rest)
                shown += done.out + done.err
    assert not obeyed(shown)
    assert ("evil" in shown) is (name not in _OWN_TEXTS)


_TOML: Final = (
    f'"a {HOSTILE.encode("unicode_escape").decode().replace(chr(92) + "x", chr(92) + "u00")} evil"'
)
_PROFILE: Final = f"""description = {_TOML}
engine = "command"
port = 9000
gpus = []
[command]
argv = ["/usr/bin/true", "{{port}}", {_TOML}]
[backend]
{_TOML} = {_TOML}
"""
_LOG: Final = "Nov 28 06:36:16 garage vllm[1]: "


def _give(it: HostileSession) -> None:
    """Make what files, names and programs of the box say hostile."""
    root = it.files.root
    (root / "profiles" / "evil.toml").write_text(_PROFILE)
    (root / "profiles" / f"evil{HOSTILE.replace(chr(0), '')}.toml").write_text("[")
    (root / "units" / "appliance-backend-aeon.service").write_text(
        f"[Unit]\nDescription=evil {HOSTILE}"
    )
    (root / "appliance.toml").write_text(f"[gateway]\n{_TOML} = {_TOML}\n")
    (root / "said").write_text(f"{_LOG}evil {HOSTILE}\n" * 3)
    it.files.program("systemctl", f"cat {root}/said >&2; cat {root}/said; exit 1")
    it.files.program("journalctl", f"cat {root}/said")


@pytest.mark.parametrize(
    "line",
    [
        *(f"{verb.name} evil{HOSTILE}" for verb in VERBS if verb.name not in {"run", "top"}),
        *(f"{verb.name} --evil{HOSTILE}" for verb in VERBS[:3]),
        f"profile validate evil{HOSTILE}.toml",
        f"profile import evil{HOSTILE}.yaml",
        f"mark aeon evil{HOSTILE}",
        *("profile validate", "profile lint", "profile render", "show aeon --unit", "list --all"),
        *(
            "config validate",
            "config show",
            "apply",
            "apply --dry-run",
            "edit evil",
            "show evil --config",
        ),
        *("status", "target ls", "logs", "logs -f", "logs --json", "verify", "profile rm evil"),
    ],
    ids=ascii,
)
def test_no_file_name_or_program_reaches_a_terminal_as_it_is(line: str) -> None:
    """Names that were typed, files, settings, and what systemctl and journalctl print."""
    with hostile_session(Script(())) as it:
        _give(it)
        it.has_terminal = True
        it.more_environment |= {"TERM": "xterm", "COLUMNS": "100"}
        done = it.run(*line.replace("\0", "").split())
    assert not obeyed(done.out + done.err)


def test_one_place_writes_to_the_streams() -> None:
    """No verb has a way around `appliance.cli.terminal`; a flush is none."""
    folder = Path(terminal.__file__).parent
    others = {file: file.read_text() for file in folder.rglob("*.py") if file.name != "terminal.py"}
    way = re.compile(
        r"stream\.write|writer\(\w+\.stream|std(?:out|err)\.(?:write|buffer)|\bprint\("
    )
    assert not [file for file, text in others.items() if way.search(text)]
