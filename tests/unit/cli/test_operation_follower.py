"""The command line and the real control server, over a real socket, on a box in virtual time.

What the fake supervisor of the other tests promises is kept here by the real one.
"""

import asyncio
import json
import os
import pwd
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance import __version__
from appliance.cli.operation_follower import find_again, need_lines
from appliance.model.errors import UnreachableError
from appliance.model.status import StatusDocument, SupervisorRow
from appliance.status.box_status import build_status
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import Supervisor
from appliance.system.credential_files import KEY_FILE, FileKeys
from appliance.wire.control_events import EndedEvent
from tests.fakes.cli_box import CliBox, Ended
from tests.fakes.operator_accounts import token_desk
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

AEON = applied("aeon", "gpu-all", port=8023)
GENESIS = applied("genesis", "gpu-all", port=8022)
BOX = catalogue(AEON, GENESIS)


@dataclass(frozen=True, slots=True)
class Live:
    """A supervised box and the command line on it."""

    box: CliBox
    fakes: FakePorts

    async def run(self, *arguments: str) -> Ended:
        """Run a command while the supervisor does its work."""
        return await asyncio.to_thread(self.box.run, *arguments)


def status_of(supervisor: Supervisor, fakes: FakePorts) -> Any:
    async def document() -> StatusDocument:
        state = await supervisor.state()
        return build_status(
            catalogue=state.catalogue,
            observed=state.observed,
            committed=state.committed,
            hold_until=state.hold_until,
            marks=await fakes.store.marks(),
            operation=None,
            last_operation=None,
            memory=None,
            supervisor=SupervisorRow(state="up", uptime_s=1.0),
            host="garage",
            version=__version__,
            now=fakes.clock.unix_s(),
            now_s=fakes.clock.monotonic_s(),
        )

    return document


@asynccontextmanager
async def live(box: CliBox) -> AsyncIterator[Live]:
    """A supervisor with aeon committed and serving, and its control socket."""
    box.install(AEON, GENESIS, committed="aeon")
    fakes = FakePorts(BOX, "aeon")
    fakes.units.patience = sys.maxsize
    fakes.serve("aeon")
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    server = ControlVerbs(
        supervisor,
        status=status_of(supervisor, fakes),
        keys=FileKeys(box.root / "state"),
        tokens=token_desk(box.root / "state"),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=fakes.clock.unix_s,
    )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(box.socket))
    listener.listen()
    listener.settimeout(0)
    tasks = [asyncio.create_task(supervisor.run()), asyncio.create_task(server.serve(listener))]
    try:
        yield Live(box, fakes)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        listener.close()


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    return CliBox(tmp_path)


async def test_a_switch_from_end_to_end(box: CliBox) -> None:
    """A switch shows the server's phases, ends with its sentence, and commits."""
    async with live(box) as it:
        ended = await it.run("switch", "genesis")
        assert ended.status == 0, ended.err
        assert ended.out.startswith("genesis is serving on :8022 in ")
        labels = [line[3:27].strip() for line in ended.err.splitlines()[1:]]
        assert ended.err.startswith("aeon → genesis")
        assert labels[0] == "preflight"
        assert labels[-1] == "committing"
        assert it.fakes.commitment.names == ("genesis",)
        status = await it.run("status", "--json")
        assert json.loads(status.out)["committed"] == ["genesis"]
        assert status.status == 0


async def test_the_end_of_an_operation_can_be_asked_for_afterwards(box: CliBox) -> None:
    """A client that lost the conversation gets the same end by the operation's number later."""
    async with live(box) as it:
        it.fakes.backend.cold.add("genesis")
        told = await it.run("switch", "genesis", "--json")
        await it.run("stop")
        told_first = json.loads(told.out.splitlines()[-1])
        conversation, event = await asyncio.to_thread(
            find_again, str(box.socket), told_first["operation"], 0.0
        )
        conversation.close()
        assert isinstance(event, EndedEvent)
        found = json.loads(conversation.last_line)
        assert {**found, "log": [], "serving": told_first["serving"]} == {**told_first, "log": []}
        with pytest.raises(UnreachableError):
            await asyncio.to_thread(find_again, str(box.socket), 999, 0.0)


async def test_a_failed_switch_from_end_to_end(box: CliBox) -> None:
    """A switch that fails ends with 10 and names what serves again."""
    async with live(box) as it:
        it.fakes.backend.cold.add("genesis")
        ended = await it.run("switch", "genesis")
        assert ended.status == 10, ended.err
        assert "restored: aeon serves again" in ended.err
        assert " ✗ warm-up" in ended.err
        assert "back: " in ended.err


@pytest.mark.parametrize(
    ("serving", "cold", "status", "sentence"),
    [
        (("aeon",), (), 0, "cancelled: aeon serves\n"),
        (("aeon",), ("aeon",), 1, "cancelled by root; roll-back failed: no answer within"),
        ((), (), 0, "cancelled: nothing serves\n"),
    ],
)
async def test_a_cancelled_switch_from_end_to_end(
    box: CliBox, serving: tuple[str, ...], cold: tuple[str, ...], status: int, sentence: str
) -> None:
    """Cancelling succeeds when the switch was undone, and not when the roll-back failed."""
    async with live(box) as it:
        if not serving:
            await it.run("hold")
        it.fakes.backend.cold.update(cold)
        it.fakes.backend.hangs.add("genesis")
        await it.run("switch", "genesis", "--no-wait")
        ended = await it.run("cancel")
    assert (ended.status, sentence in ended.out + ended.err) == (status, True), ended


@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("switch genisis", 4, 'no profile "genisis". Did you mean "genesis"?'),
        ("switch genesis --dry-run", 0, "would stop   aeon"),
        ("start genesis", 1, "aeon"),
        ("cancel", 0, "nothing to cancel"),
        ("wait", 0, "no operation is running"),
        ("wait --for serving", 0, "aeon is serving"),
        ("mark genesis retired", 0, "genesis is marked retired"),
        ("stop", 0, "aeon"),
        ("hold", 0, "holding: nothing is started until a switch or a start\n"),
        ("hold --for 2h", 0, "; the hold ends by itself at "),
        ("restart aeon", 0, "aeon"),
        ("version", 0, f"supervisor {__version__}"),
    ],
)
async def test_verbs_from_end_to_end(box: CliBox, command: str, status: int, sentence: str) -> None:
    """Every verb and the server understand each other."""
    async with live(box) as it:
        ended = await it.run(*command.split())
    assert ended.status == status, ended
    assert sentence in ended.out + ended.err
    assert "Traceback" not in ended.err


async def test_keys_from_end_to_end(box: CliBox) -> None:
    """The key alone is on stdout, once; the list has it without its secret; then it is gone."""
    async with live(box) as it:
        added = await it.run("key", "add", "phone", "--may-switch", "--profiles", "aeon,genesis")
        assert added.status == 0, added.err
        key = added.out.strip()
        assert key.startswith("apl_")
        assert "shown only this once" in added.err
        assert key not in added.err
        listed = await it.run("key", "ls")
        assert listed.out.splitlines()[0].split()[:3] == ["NAME", "ID", "MADE"]
        words = listed.out.splitlines()[1].split()
        assert (words[0], words[1], words[3:]) == ("phone", key[4:12], ["yes", "aeon,", "genesis"])
        assert (box.root / "state" / KEY_FILE).stat().st_mode & 0o777 == 0o640
        as_json = json.loads((await it.run("key", "ls", "--json")).out)
        assert [k["profiles"] for k in as_json["keys"]] == [["aeon", "genesis"]]
        removed = await it.run("key", "rm", "phone")
        assert removed.out.startswith("phone has no key any more")
        assert (await it.run("key", "ls")).out == "no key yet: appliance key add NAME\n"


@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("key add", 2, "key add wants a NAME: appliance key --help"),
        ("key ls x", 2, "key ls takes no NAME: appliance key --help"),
        ("key rm x --may-switch", 2, "key rm takes no options: appliance key --help"),
        ("key add x --profiles genisis", 4, 'no profile "genisis". Did you mean "genesis"?'),
        ("key rm x", 4, 'there is no key "x": appliance key ls'),
    ],
)
async def test_keys_that_cannot_be(box: CliBox, command: str, status: int, sentence: str) -> None:
    """Each mistake has its exit status and its sentence."""
    async with live(box) as it:
        ended = await it.run(*command.split())
        assert (ended.status, ended.err) == (status, f"{sentence}\n")
        assert ended.out == ""


async def test_tokens_from_end_to_end(box: CliBox) -> None:
    """The token alone is on stdout, once; the list has it without its secret; then it is gone."""
    async with live(box) as it:
        added = await it.run("token", "add", "phone", "--for", "90d")
        assert added.status == 0, added.err
        token = added.out.strip()
        assert token.startswith("apt_")
        assert "shown only this once" in added.err
        assert token not in added.err
        listed = (await it.run("token", "ls")).out.splitlines()
        assert listed[0].split()[:4] == ["NAME", "ID", "ACTS", "AS"]
        words = listed[1].split()
        me = pwd.getpwuid(os.geteuid()).pw_name
        assert (words[0], words[1], words[2], words[-1]) == ("phone", token[4:12], me, "never")
        as_json = json.loads((await it.run("token", "ls", "--json")).out)
        assert [one["expired"] for one in as_json["tokens"]] == [False]
        assert token.rpartition("_")[2] not in str(as_json)
        removed = await it.run("token", "rm", "phone")
        assert removed.out.endswith("is refused from now on\n")
        assert (await it.run("token", "ls")).out == "no token yet: appliance token add NAME\n"


@pytest.mark.parametrize(
    ("command", "status", "sentence"),
    [
        ("token add", 2, "token add wants a NAME: appliance token --help"),
        ("token ls x", 2, "token ls takes no NAME: appliance token --help"),
        ("token rm x --for 1h", 2, "token rm takes no options: appliance token --help"),
        ("token ls --user root", 2, "token ls takes no options: appliance token --help"),
        ("token rm x", 4, 'there is no token "x": appliance token ls'),
    ],
)
async def test_tokens_that_cannot_be(box: CliBox, command: str, status: int, sentence: str) -> None:
    """Each mistake has its exit status and its sentence."""
    async with live(box) as it:
        ended = await it.run(*command.split())
        assert (ended.status, ended.err) == (status, f"{sentence}\n")
        assert ended.out == ""


def _events(path: Path, verb: str, arguments: Mapping[str, object]) -> list[Mapping[str, Any]]:
    request = {"protocol": {"min": 1, "max": 1}, "version": "0", "verb": verb, "args": arguments}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(path))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile() as lines:
            return [json.loads(line) for line in lines]


async def test_only_who_asked_for_a_run_is_given_its_token(box: CliBox) -> None:
    """A client that follows the operation, or asks for its end, sees everything but the token."""
    async with live(box) as it:
        asked = asyncio.create_task(
            asyncio.to_thread(_events, box.socket, "run", {"command": "sh", "gpus": "all"})
        )
        while (issued := it.fakes.tickets.issued) is None:
            await asyncio.sleep(0)
        followed = asyncio.create_task(asyncio.to_thread(_events, box.socket, "attach", {}))
        tokens = [event["token"] for event in await asked if event["event"] == "ticket"]
        assert tokens == [issued[1].token]
        assert issued[1].uid == os.geteuid()
        assert tokens[0] not in json.dumps(await followed)


GIB = 1 << 30
PLACED = {
    "vram": {"weights_bytes": 8 * GIB, "cache_bytes": 4 * GIB},
    "ram": {"weights_bytes": GIB, "checkpoints_bytes": 2 * GIB, "state_bytes": 0},
}


def test_parts_have_a_line_for_each_place() -> None:
    """Parts of nothing are left out, and places without parts; a label stands in the first line only."""
    half = {"vram": {"cache_bytes": 2 * GIB}, "ram": {}, "setting": "ctx = 8192"}
    assert list(need_lines({**PLACED, "alternatives": [half]})) == [
        ("parts", "GPUs ≈12.0 GiB: weights 8.0 GiB, cache 4.0 GiB"),
        ("", "RAM ≈3.0 GiB: weights 1.0 GiB, checkpoints 2.0 GiB"),
        ("ctx = 8192", "GPUs ≈2.0 GiB: cache 2.0 GiB"),
    ]


def test_gpus_that_are_known_have_a_line_each() -> None:
    """Lines of single GPUs take the place of that of all together."""
    gpus = {"0": {"weights_bytes": 6 * GIB}, "1": {"weights_bytes": 2 * GIB}}
    assert [text for _, text in need_lines({**PLACED, "gpus": gpus})] == [
        "GPU 0 ≈6.0 GiB: weights 6.0 GiB",
        "GPU 1 ≈2.0 GiB: weights 2.0 GiB",
        "RAM ≈3.0 GiB: weights 1.0 GiB, checkpoints 2.0 GiB",
    ]


def test_no_estimate_has_no_lines() -> None:
    """An older supervisor sends none."""
    assert list(need_lines({})) == []
