"""`status`, `list`, `show`, `wait`, `logs` and `version`, with the supervisor up and down."""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from appliance.model.names import unit_of
from appliance.model.profile import Need
from appliance.model.words import Mark
from appliance.switch.memory.peak import ObservedPeak, encoded
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Hang, Story
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import as_status, profile_row, status_document

NOW = time.time()
SERVING = 'ActiveState=active SubState=running MainPID=42 "ActiveEnterTimestamp=@1700000000"'
STOPPED = "ActiveState=inactive SubState=dead"
DEAD = "ActiveState=inactive"


def document(*rows: Mapping[str, object], **more: object) -> dict[str, object]:
    card = {
        "index": 0,
        "uuid": "GPU-1",
        "name": "RTX 3090",
        "total_bytes": 24 << 30,
        "free_bytes": 3 << 30,
    }
    memory = {
        "ram_total_bytes": 32 << 30,
        "ram_available_bytes": 20 << 30,
        "gpus": [card],
        "gpu_error": None,
    }
    return status_document(*rows, **{"memory": memory, **more})


def answers(content: Mapping[str, object]) -> dict[str, Story]:
    return {"status": [{"event": "result", "exit": 0, "status": content}]}


GENESIS = profile_row("genesis", "serving", mark="live", committed=True, uptime_s=2 * 86_400.0 + 60)
AEON = profile_row("aeon", "stopped")
OLDMIX = profile_row("oldmix", "stopped", mark="retired")
FULL = document(OLDMIX, AEON, GENESIS)


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install(
        applied("aeon", "gpu-all", port=8023),
        applied("genesis", "gpu-all", port=8022, mark=Mark.LIVE),
        committed="genesis\n",
    )
    return box


def started() -> str:
    """Return when genesis began, as the screen tells it at this moment."""
    return time.strftime("%a %H:%M", time.gmtime(time.time() - 2 * 86_400 - 60))


def test_status_screen(box: CliBox) -> None:
    """The screen has the box first, then what serves, then the rest, retired ones last."""
    began = [started()]
    with FakeSupervisor(box.socket, answers(FULL)):
        ended = box.run("status")
    began.append(started())  # a minute may have begun meanwhile
    assert ended.status == 0
    lines = ended.out.splitlines()
    since = next((when for when in began if when in lines[2]), began[0])
    assert lines == [
        "garage · RTX 3090 21.0 of 24.0 GiB · RAM 12.0 of 32.0 GiB · supervisor 0.1.0 up 12 d",
        "",
        f"● genesis  serving     committed  vllm :8022  people told  since {since} (2 d)",
        "○ aeon     stopped                vllm :8022  nobody told",
        "⊘ oldmix   stopped                vllm :8022  retired",
        "",
        "speed not known: systemctl status appliance-health",
    ]


def test_status_says_what_is_wrong_and_what_runs(box: CliBox) -> None:
    """Notes, the running operation and the reasons are all on the screen, the operation once."""
    content = document(
        profile_row("genesis", "loading", status_text="loading 3.0 of 18.1 GiB", note="edited"),
        operation={
            "kind": "switch",
            "target": ["genesis"],
            "phase": "load",
            "rolling_back": False,
            "elapsed_s": 12.0,
            "text": "loading 3.0 of 18.1 GiB",
            "requested_by": "ana (uid 1000, pid 4121)",
        },
        verdict={
            "state": "nothing",
            "exit": 3,
            "why": ["switch to genesis by ana is running (load): appliance wait", "a GPU is lost"],
        },
    )
    with FakeSupervisor(box.socket, answers(content)):
        ended = box.run("status")
    assert ended.status == 3
    assert ended.out.splitlines()[2:] == [
        "◐ genesis  loading     vllm :8022  nobody told",
        "    loading 3.0 of 18.1 GiB",
        "    edited",
        "",
        "switch to genesis by ana: load, 12.0 s (loading 3.0 of 18.1 GiB)",
        "a GPU is lost",
    ]


LAST = {
    "kind": "switch",
    "target": ["aeon"],
    "outcome": "rolled-back",
    "message": "aeon did not start",
    "requested_by": "ana (uid 1000, pid 7)",
    "finished_unix_s": 0.0,
    "age_s": 7200.0,
    "ms": 9000.0,
}
REPAIR = {**LAST, "kind": "repair", "requested_by": "supervisor", "outcome": "failed"}
REFUSED = {**LAST, "outcome": "refused", "message": "busy"}
FAILED_REPAIR = "by supervisor 2 h ago: failed (aeon did not start) in 9.0 s"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            {"last_operation": LAST},
            "last: switch to aeon by ana 2 h ago: rolled-back (aeon did not start) in 9.0 s",
        ),
        (
            {"last_operation": REFUSED, "last_change": {**LAST, "outcome": "done"}},
            "last: switch to aeon by ana 2 h ago: done in 9.0 s",
        ),
        ({"last_change": REPAIR}, f"last: repair aeon {FAILED_REPAIR}"),
        (
            {"last_change": {**REPAIR, "target": ["genesis"]}},
            f"last: repair genesis {FAILED_REPAIR}; it serves now",
        ),
        (
            {"last_change": {**REPAIR, "target": ["genesis", "nova"]}},
            f"last: repair genesis and nova {FAILED_REPAIR}; they serve now",
        ),
    ],
)
def test_status_tells_the_last_operation(
    box: CliBox, told: Mapping[str, object], line: str
) -> None:
    """Requester and outcome of what is over; no refusal, and a failed repair beside what serves since says so."""
    nova = profile_row("nova", "serving")
    with FakeSupervisor(box.socket, answers(document(GENESIS, AEON, nova, **told))):
        ended = box.run("status")
    assert line in ended.out.splitlines()


def test_status_tells_gpus_that_cannot_be_read(box: CliBox) -> None:
    """A driver that does not answer is on the screen, not only in the document."""
    memory = {"gpus": [], "gpu_error": "driver/library mismatch after an upgrade: reboot needed"}
    with FakeSupervisor(box.socket, answers(document(GENESIS, memory=memory))):
        ended = box.run("status")
    assert "GPUs cannot be read: driver/library mismatch" in ended.out


def holder(comm: str, held: int | None, *, profile: str | None = None, pid: int = 1) -> object:
    return {"profile": profile, "unit": "", "user": "", "comm": comm, "pid": pid} | {
        "held_bytes": held
    }


def gpu(index: int, *holders: object, unattributed: int = 0) -> dict[str, object]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "RTX 3090",
        "total_bytes": 24 << 30,
        "free_bytes": 3 << 30,
        "used_bytes": 21 << 30,
        "holders": list(holders),
        "unattributed_bytes": unattributed,
    }


def vram(box: CliBox, *gpus: dict[str, object], **more: object) -> list[str]:
    memory = {"gpus": list(gpus), "gpu_error": None, **more}
    with FakeSupervisor(box.socket, answers(document(AEON, GENESIS, memory=memory))):
        lines = box.run("status").out.splitlines()
    return [line for line in lines if line.strip().startswith(("VRAM", "GPUs", "●", "○"))]


def test_status_names_who_holds_a_gpu(box: CliBox) -> None:
    """Under the profile: its memory in one figure, others with their pid, the rest together."""
    lines = vram(
        box,
        gpu(
            0,
            holder("python3", 9 << 30, pid=4121),
            holder("engine", 6 << 30, profile="genesis"),
            holder("worker", 5 << 30, profile="genesis", pid=2),
            holder("Xorg", 400 << 20, pid=812),
            holder("dwm", None, pid=813),
            holder("a", 300 << 20, pid=3),
            holder("b", 200 << 20, pid=4),
            unattributed=1 << 30,
        ),
    )
    assert lines[1] == (
        "    VRAM    21.0 of 24.0 GiB  genesis 11.0 · python3(4121) 9.0 · Xorg(812) 0.4"
        " · a(3) 0.3 · 2 more 0.2 · unattributed 1.0"
    )


def test_status_places_each_gpu_with_its_profile(box: CliBox) -> None:
    """A GPU that no running profile holds is told after the profiles; an idle one is not."""
    lines = vram(
        box,
        gpu(0, holder("engine", 6 << 30, profile="genesis"), holder("odd", None, pid=5)),
        gpu(1, holder("old", 1 << 30, profile="aeon")),
        gpu(2),
    )
    assert [lines[1], lines[3]] == [
        "    VRAM    GPU 0  21.0 of 24.0 GiB  genesis 6.0 · odd(5)",
        "VRAM    GPU 1  21.0 of 24.0 GiB  aeon 1.0",
    ]


def test_status_says_how_old_its_figures_are(box: CliBox) -> None:
    """Figures of some time ago are not passed off as those of now."""
    lines = vram(box, gpu(0), sampled_unix_s=0.0, sampled_age_s=301.0)
    assert lines[-1] == "GPUs as they were 5 min ago"


TRAFFIC = {
    "name": "genesis",
    "requests": 40,
    "in_flight": 2,
    "queued": 1,
    "errors": 3,
    "tok_s": 41.04,
    "ttft_ms": {"p50": 412.0, "p99": 1200.0},
    "engine": {"running": 2, "queued": 1, "kv_cache": 0.62},
}
SAID = (
    "    traffic 2 in flight, 1 waiting, 40 so far, 3 failed · 41.0 tok/s · TTFT 0.41 s"
    " · 1 queued in the engine · KV cache 62 %"
)


@pytest.mark.parametrize(
    ("traffic", "said"),
    [
        (TRAFFIC, [SAID]),
        ({"name": "genesis", "requests": 1}, ["    traffic 0 in flight, 1 so far"]),
        ({"name": "genesis", "engine": {"queued": 0}}, []),
        ({**TRAFFIC, "name": "aeon"}, []),  # which is stopped
    ],
)
def test_status_tells_the_traffic(
    box: CliBox, traffic: Mapping[str, object], said: list[str]
) -> None:
    """One line about what goes through the gateway to a profile, and none where nothing does."""
    gateway = {"state": "up", "uptime_s": 1.0, "profiles": [traffic], "keys": []}
    with FakeSupervisor(box.socket, answers(document(AEON, GENESIS, gateway=gateway))):
        ended = box.run("status")
    assert [line for line in ended.out.splitlines() if "traffic" in line] == said


def test_status_tells_a_gateway_that_is_down(box: CliBox) -> None:
    """Of a gateway that does not answer no address is told; the verdict says what to do."""
    gateway: Mapping[str, object] = {"state": "down", "profiles": [], "keys": []}
    with FakeSupervisor(box.socket, answers(document(GENESIS, gateway=gateway))):
        ended = box.run("status")
    assert not [line for line in ended.out.splitlines() if line.startswith("gateway ")]


HERE = "gateway 127.0.0.1:8010"
RENEWED = (
    "the renewed certificate waits for a restart: sudo systemctl restart appliance-gateway.service"
)
TLS_WAITS = "TLS waits for a restart: sudo systemctl restart appliance-gateway.service"


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ({}, HERE),
        (
            {"addresses": ["127.0.0.1:8010", "192.0.2.5:8010"], "tls": "on", "keys": 1},
            "gateway 127.0.0.1:8010, 192.0.2.5:8010 · TLS beyond this machine · 1 key",
        ),
        (
            {"absent": ["192.0.2.5", "wg0"], "tls": "waiting", "keys": 2},
            f"{HERE} · 192.0.2.5 and wg0 are not there yet · 2 keys · {TLS_WAITS}",
        ),
        (
            {"tls": "renewed"},
            f"{HERE} · TLS beyond this machine · {RENEWED}",
        ),
        (
            {"closed": True},
            f"{HERE} · closed to other machines until there is a key: appliance key add NAME",
        ),
    ],
)
def test_status_tells_where_clients_are_served(
    box: CliBox, told: Mapping[str, object], line: str
) -> None:
    """Addresses, and whatever other machines still wait for."""
    usual = {"addresses": ["127.0.0.1:8010"], "absent": [], "tls": "off", "keys": 0}
    gateway = {"state": "up", "profiles": [], "keys": [], "listening": {**usual, **told}}
    with FakeSupervisor(box.socket, answers(document(GENESIS, gateway=gateway))):
        ended = box.run("status")
    assert line in ended.out.splitlines()


def test_json_is_the_document(box: CliBox) -> None:
    """--json prints the supervisor's document unchanged, speeds and alerts beside it."""
    with FakeSupervisor(box.socket, answers(FULL)):
        printed = json.loads(box.run("status", "--json").out)
    assert printed.pop("speed")["profiles"] == {}
    assert printed.pop("alerts") is None
    told = msgspec.to_builtins(as_status(FULL))
    assert printed == told


def test_glyphs_become_letters_where_the_terminal_knows_no_unicode(box: CliBox) -> None:
    """Output in another encoding is readable and does not fail."""
    with FakeSupervisor(box.socket, answers(FULL)):
        ended = box.run("status", PYTHONIOENCODING="ascii")
    assert ended.status == 0
    assert ended.out.isascii()
    assert [line[0] for line in ended.out.splitlines()[2:5]] == ["*", "-", "x"]


@pytest.mark.parametrize(
    ("state", "committed", "status"),
    [("serving", True, 0), ("failed", False, 1), ("stopped", False, 3), ("stopped", True, 1)],
)
def test_status_of_one(box: CliBox, state: str, *, committed: bool, status: int) -> None:
    """`status NAME` is about that profile alone, exit status included."""
    content = document(profile_row("genesis", state, committed=committed), AEON)
    with FakeSupervisor(box.socket, answers(content)):
        ended = box.run("status", "genesis")
        as_json = box.run("status", "genesis", "--json")
    assert ended.status == as_json.status == status
    assert "aeon" not in ended.out
    assert json.loads(as_json.out)["state"] == state


@pytest.mark.parametrize("verb", ["status", "show", "wait"])
def test_unknown_profile(box: CliBox, verb: str) -> None:
    """A wrong name exits 4 with the likely one."""
    with FakeSupervisor(box.socket, answers(document(GENESIS, AEON))):
        ended = box.run(verb, "genisis")
    assert (ended.status, ended.err) == (4, 'no profile "genisis". Did you mean "genesis"?\n')


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ["aeon", "genesis"]),
        (("--all",), ["oldmix", "aeon", "genesis"]),
        (("--mark", "live"), ["genesis"]),
        (("--mark", "retired"), ["oldmix"]),
    ],
)
def test_list(box: CliBox, arguments: tuple[str, ...], names: list[str]) -> None:
    """The list leaves retired profiles out until they are asked for."""
    with FakeSupervisor(box.socket, answers(FULL)):
        text = box.run("list", *arguments)
        as_json = box.run("ls", *arguments, "--json")
    assert (text.status, as_json.status) == (0, 0)
    assert [line.split()[1] for line in text.out.splitlines()] == names
    assert [entry["name"] for entry in json.loads(as_json.out)] == names


# --- without a supervisor -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("genesis", "status", "sentence"),
    [
        (SERVING, 1, "supervisor not running: sudo systemctl start appliance-supervisor"),
        (STOPPED, 3, "genesis is committed but stopped: appliance start genesis"),
        ("ActiveState=failed Result=exit-code ExecMainStatus=3", 3, "exited with status 3"),
        ("ActiveState=activating SubState=auto-restart Result=signal", 3, "restarting"),
    ],
)
def test_status_reads_systemd_without_supervisor(
    box: CliBox, genesis: str, status: int, sentence: str
) -> None:
    """With the supervisor down the status comes from systemd, in one call for all units."""
    box.systemd_says(hold=DEAD, supervisor=DEAD, aeon=STOPPED, genesis=genesis)
    ended = box.run("status")
    assert ended.status == status
    assert "supervisor not running" in ended.out
    assert sentence in ended.out
    (call,) = box.asked()
    assert call.endswith(
        "-- appliance-hold.service appliance-run.service appliance-supervisor.service"
        " appliance-backend-*.service"
    )


def test_status_without_supervisor_looks_for_units_that_systemd_has_not_loaded(
    box: CliBox,
) -> None:
    """An unloaded unit is stopped where its file exists, and missing where it does not."""
    box.systemd_says(hold=DEAD, supervisor=DEAD)
    (box.root / "units" / unit_of("aeon")).touch()
    rows = {row["name"]: row for row in json.loads(box.run("status", "--json").out)["profiles"]}
    assert (rows["aeon"]["state"], rows["aeon"]["note"]) == ("stopped", None)
    assert rows["genesis"]["note"] == "its unit is missing: sudo appliance apply"


def test_offline_document_has_the_shape_of_the_supervisors(box: CliBox) -> None:
    """The document made from systemd has the same keys, and says what it cannot know."""
    box.systemd_says(hold=DEAD, supervisor=DEAD, aeon=STOPPED, genesis=SERVING)
    offline = json.loads(box.run("status", "--json").out)
    assert offline.keys() == {*FULL.keys(), "speed", "alerts"}
    assert offline["profiles"][0].keys() == GENESIS.keys()
    assert offline["memory"].keys() == {
        "ram_total_bytes",
        "ram_available_bytes",
        "gpus",
        "gpu_error",
        "gpu_state",
        "sampled_unix_s",
        "sampled_age_s",
    }
    assert offline["supervisor"] == {"state": "down", "uptime_s": None}
    assert offline["profiles"][1] | {"note": None} == profile_row(
        "genesis",
        "serving",
        description="test profile genesis",
        model="",
        mark=None,
        engine="command",
        committed=True,
        main_pid=42,
        since_unix_s=1.7e9,
    )


def test_offline_status_tells_holds_and_refusals(box: CliBox) -> None:
    """The hold file and the gate's last word are read without a supervisor."""
    box.install(applied("genesis", "gpu-all"), committed="genesis", hold="forever\n")
    refusal = {"verdict": "refused", "reason": "gpu-all is held by python3 (pid 41)"}
    (box.root / "gate" / "genesis.json").write_text(json.dumps(refusal))
    box.systemd_says(hold="ActiveState=active", supervisor=DEAD, genesis=STOPPED)
    ended = box.run("status")
    assert ended.status == 3
    assert "on hold without an end" in ended.out
    assert "gpu-all is held by python3 (pid 41)" in ended.out


def test_offline_status_of_an_edited_profile(box: CliBox, tmp_path: Path) -> None:
    """A profile that changed since it was applied is told from its own bytes."""
    source = tmp_path / "genesis.toml"
    source.write_text("changed = true\n")
    profile = applied("genesis", "gpu-all")
    manifest = box.root / "applied" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(profile.source_path, str(source)))
    box.systemd_says(hold=DEAD, supervisor=DEAD, aeon=STOPPED, genesis=SERVING)
    ended = box.run("status", "genesis")
    assert ended.status == 0
    assert "its profile changed since it was applied: sudo appliance apply" in ended.out


def test_list_and_show_work_without_supervisor(box: CliBox) -> None:
    """Installed profiles can be read without a supervisor."""
    box.systemd_says(hold=DEAD, supervisor=DEAD, aeon=STOPPED, genesis=SERVING)
    listed = box.run("list")
    assert (listed.status, len(listed.out.splitlines())) == (0, 2)
    assert "marks are not known" in listed.err
    shown = box.run("show", "genesis")
    assert shown.status == 0
    assert "127.0.0.1:8022" in shown.out
    assert json.loads(box.run("show", "genesis", "--json").out)["applied"]["claim"] == ["gpu-all"]


@pytest.mark.parametrize(
    ("option", "folder", "file"),
    [("--unit", "units", "appliance-backend-genesis.service")],
)
def test_show_prints_files_as_they_are(box: CliBox, option: str, folder: str, file: str) -> None:
    """`show --unit` is the installed file, byte for byte; a missing one says what to do."""
    missing = box.run("show", "genesis", option)
    assert (missing.status, "sudo appliance apply" in missing.err) == (1, True)
    (box.root / folder / file).write_text("[Unit]\nDescription=x\n")
    assert box.run("show", "genesis", option).out == "[Unit]\nDescription=x\n"
    as_json = json.loads(box.run("show", "genesis", option, "--json").out)
    assert as_json["text"] == "[Unit]\nDescription=x\n"


def test_a_damaged_manifest_is_an_error_without_traceback(box: CliBox) -> None:
    """A manifest that is no manifest is named, with the way out."""
    (box.root / "applied" / "manifest.json").write_text("{")
    ended = box.run("status")
    assert ended.status == 1
    assert "sudo appliance apply" in ended.err
    assert "Traceback" not in ended.err


def test_neither_supervisor_nor_systemd(box: CliBox) -> None:
    """Where nobody answers, that is what is said."""
    box.program("systemctl", "echo 'Failed to connect to bus' >&2; exit 1")
    ended = box.run("status")
    assert (ended.status, ended.err) == (69, "systemd does not answer: Failed to connect to bus\n")


# --- wait, logs, version ------------------------------------------------------------------------


def test_wait_follows_the_running_operation(box: CliBox) -> None:
    """`wait` alone ends as the running operation does."""
    story: Story = [
        {"event": "accepted", "operation": 3, "kind": "switch", "target": ["aeon"]},
        {"event": "result", "exit": 10, "message": "aeon did not start"},
    ]
    with FakeSupervisor(box.socket, {"attach": story}):
        assert box.run("wait").status == 10


@pytest.mark.parametrize(
    ("arguments", "content", "status", "sentence"),
    [
        (("genesis",), FULL, 0, "genesis is serving"),
        (("--for", "serving"), FULL, 0, "genesis is serving"),
        (("--for", "idle"), FULL, 0, "no operation is running"),
        (("aeon", "--for", "idle"), FULL, 0, "aeon is stopped"),
        (("genesis", "--for", "idle", "--timeout", "1ms"), FULL, 124, "genesis is serving after"),
        (("aeon", "--timeout", "1ms"), FULL, 124, "aeon is stopped after 0.0 s: appliance status"),
        (
            ("genesis",),
            document(profile_row("genesis", "failed", note="exited with status 3")),
            1,
            "genesis failed (exited with status 3): appliance logs genesis",
        ),
        (("--for", "serving"), document(committed=[]), 1, "nothing is committed"),
        (
            ("--for", "serving", "--timeout", "1ms"),
            document(GENESIS, operation={"kind": "switch"}),
            124,
            "an operation is still running",
        ),
    ],
)
def test_wait_for_a_state(
    box: CliBox,
    arguments: tuple[str, ...],
    content: Mapping[str, object],
    status: int,
    sentence: str,
) -> None:
    """`wait --for` ends when the state is there, can never be, or the time is over."""
    with FakeSupervisor(box.socket, answers(content)):
        ended = box.run("wait", *arguments)
    assert ended.status == status
    assert sentence in ended.out + ended.err


def test_wait_works_without_supervisor(box: CliBox) -> None:
    """Without a supervisor `wait` waits until the committed profiles serve."""
    box.systemd_says(hold=DEAD, supervisor=DEAD, aeon=STOPPED, genesis=SERVING)
    ended = box.run("wait")
    assert (ended.status, ended.out) == (0, "genesis is serving\n")


def test_wait_times_out_on_a_silent_operation(box: CliBox) -> None:
    """`wait --timeout` bounds the wait for an operation too."""
    story: Story = [
        {"event": "accepted", "operation": 3, "kind": "switch", "target": ["aeon"]},
        Hang(),
    ]
    with FakeSupervisor(box.socket, {"attach": story}):
        assert box.run("wait", "--timeout", "200ms").status == 124


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ("genesis",),
            "-u appliance-backend-genesis.service -n 100 --all --no-pager",
        ),
        (
            (),
            "-u appliance-supervisor.service -u appliance-backend-*.service -n 100 --all --no-pager",
        ),
        (
            ("genesis", "aeon"),
            "-u appliance-backend-genesis.service -u appliance-backend-aeon.service -n 100 --all --no-pager",
        ),
        (
            ("genesis", "-f", "-n", "5"),
            "-u appliance-backend-genesis.service -n 5 -f --all --no-pager",
        ),
        (
            ("genesis", "--since", "10m"),
            "-u appliance-backend-genesis.service --since -600s --all --no-pager",
        ),
        (
            ("genesis", "--since", "yesterday", "--json"),
            "-u appliance-backend-genesis.service --since yesterday -o json --no-pager",
        ),
    ],
)
def test_logs_become_journalctl(box: CliBox, arguments: tuple[str, ...], command: str) -> None:
    """`logs` is journalctl on the right units; ages are written as everywhere else."""
    box.program("journalctl", 'echo "$@"')
    ended = box.run("logs", *arguments)
    assert (ended.status, ended.out) == (0, f"{command}\n")


def test_last_logs_of_a_span_are_found_by_their_cursor(box: CliBox) -> None:
    """With --since, `-n` counts from the newest entry, as systemd 252 does only with -r."""
    box.program(
        "journalctl",
        'case " $* " in *" -r "*) printf \'{"__CURSOR": "s=%s"}\\n\' 3 2;; *) echo "$@";; esac',
    )
    ended = box.run("logs", "genesis", "--since", "10m", "-n", "2", "-f")
    unit = "-u appliance-backend-genesis.service"
    assert ended.out == f"{unit} --cursor=s=2 --no-tail -f --all --no-pager\n"


def test_logs_of_an_empty_span(box: CliBox) -> None:
    """Where nothing was logged since then, journalctl says so itself."""
    box.program("journalctl", 'case " $* " in *" -r "*) ;; *) echo "$@";; esac')
    ended = box.run("logs", "genesis", "--since", "10m", "-n", "2")
    unit = "-u appliance-backend-genesis.service"
    assert ended.out == f"{unit} --since -600s -n 2 --all --no-pager\n"


def test_logs_of_an_unknown_profile(box: CliBox) -> None:
    """A wrong name is told, where journalctl would show an empty log."""
    assert box.run("logs", "genisis").status == 4


def test_version(box: CliBox) -> None:
    """Both versions are told, and a supervisor that does not answer is no error."""
    with FakeSupervisor(box.socket, answers(FULL)):
        up = box.run("version", "--json")
    assert json.loads(up.out)["supervisor"] == "0.1.0"
    down = box.run("version")
    told = "appliance 0.1.0 (not installed)\nsupervisor does not answer\n"
    assert (down.status, down.out) == (0, told)


PEAK = ObservedPeak(
    fingerprint="fingerprint of genesis", gpus={"GPU-1": 10 << 30, "GPU-2": 8 << 30}
)
TWO_GPUS = {
    "gpus": [
        {
            "index": index,
            "uuid": f"GPU-{index + 1}",
            "name": "RTX",
            "total_bytes": 16 << 30,
            "free_bytes": 16 << 30,
        }
        for index in range(2)
    ]
}


@pytest.mark.parametrize(
    ("memory", "peak", "lines", "source"),
    [
        (TWO_GPUS, PEAK, ["≈19.0 GiB (observed)", "GPU 0: 10.5 GiB, GPU 1: 8.5 GiB"], "observed"),
        (TWO_GPUS, None, ["≈18.0 GiB (declared)", "GPU 0: 9.0 GiB, GPU 1: 9.0 GiB"], "declared"),
        (None, None, ["≈18.0 GiB (declared)"], "declared"),
    ],
)
def test_show_says_what_a_profile_needs_and_who_says_so(
    box: CliBox, memory: object, peak: ObservedPeak | None, lines: list[str], source: str
) -> None:
    """The peak that was seen on these GPUs, else what was declared; in JSON too."""
    box.install(applied("genesis", "gpu-all", need=Need(vram_bytes=18 << 30, ram_bytes=1 << 30)))
    if peak is not None:
        (box.root / "state" / "needs").mkdir()
        (box.root / "state" / "needs" / "genesis.json").write_text(encoded(peak))
    with FakeSupervisor(box.socket, answers(document(GENESIS, memory=memory))):
        shown = box.run("show", "genesis").out.splitlines()
        found = json.loads(box.run("show", "genesis", "--json").out)
    first = next(i for i, line in enumerate(shown) if "needs VRAM" in line)
    assert [line[17:] for line in shown[first : first + len(lines)]] == lines
    assert shown[first + len(lines)] == "    needs RAM    ≈1.0 GiB (declared)"
    assert found["need"]["vram"]["source"] == source
