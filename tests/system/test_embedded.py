"""The two shipped embedded profiles: a real model, real answers, nothing to install."""

import json
import tomllib
from collections.abc import Iterator

import pytest

from tests.system.chat import ask, ask_streaming, pieces
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import CHECKOUT

NAMES = ("smol", "smol-long")
TEXTS = {name: (CHECKOUT / f"profiles/{name}.toml").read_text() for name in NAMES}
PORTS = {name: tomllib.loads(text)["port"] for name, text in TEXTS.items()}
QUESTION = "Tell me about the sea."


@pytest.fixture(scope="module")
def fleet(image: Image) -> Iterator[Fleet]:
    """A box with both profiles as they are shipped, applied."""
    with Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        for name, text in TEXTS.items():
            box.write(f"{PROFILES}/{name}.toml", text)
        fleet.apply()
        yield fleet


@pytest.mark.parametrize("name", NAMES)
def test_it_answers(fleet: Fleet, name: str) -> None:
    """After a switch the model answers in one piece and, with the same words, as a stream."""
    answer = fleet.switch(name)
    assert answer.result["message"].startswith(f"{name} is serving on :")
    assert fleet.active() == fleet.committed() == [name]
    same = {"max_tokens": 24, "temperature": 0, "seed": 1, "cache_prompt": False}
    whole = ask(fleet.box, PORTS[name], QUESTION, **same)
    assert len(whole.split()) > 3
    with ask_streaming(fleet.box, PORTS[name], QUESTION, **same) as stream:
        parts = [piece["choices"][0]["delta"].get("content") for piece in pieces(stream)]
        assert stream.wait() == 0
    assert len(parts) > 3
    assert "".join(filter(None, parts)) == whole


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_name_and_the_window_of_its_profile(fleet: Fleet, name: str) -> None:
    """Clients see the served name, and the context that the profile gives."""
    fleet.switch(name)
    port, ctx = PORTS[name], tomllib.loads(TEXTS[name])["ctx"]
    listed = fleet.box.run(f"curl -sf http://127.0.0.1:{port}/v1/models").stdout
    assert json.loads(listed)["data"][0]["id"] == name
    props = json.loads(fleet.box.run(f"curl -sf http://127.0.0.1:{port}/props").stdout)
    assert props["default_generation_settings"]["n_ctx"] == ctx


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_as_declared(fleet: Fleet, name: str) -> None:
    """Every fact that its profile declares is on its page or in its log, and agrees."""
    answer = fleet.switch(name)
    told = [e["text"] for e in answer.events if e.get("phase") == "verify" and e["state"] == "done"]
    assert told == [f"{name}: 4 facts agree"]
    found = json.loads(fleet.box.run(f"appliance verify {name} --json").stdout)
    (row,) = found["profiles"]
    states = {fact["topic"]: fact["state"] for fact in row["verification"]["facts"]}
    assert states == dict.fromkeys(("ctx", "parallel", "model", "gpu_layers"), "agrees")
    assert row["verification"]["faults"] == []


def test_a_context_that_is_not_the_declared_one_undoes_a_switch(fleet: Fleet) -> None:
    """A unit edited by hand halves the context: both values and the page are told, the other model is back."""
    fleet.switch("smol-long")
    unit = fleet.box.root / "etc/systemd/system/appliance-backend-smol.service"
    text = unit.read_text()
    assert "--ctx 2048" in text
    unit.write_text(text.replace("--ctx 2048", "--ctx 1024"))
    fleet.box.run("systemctl daemon-reload")
    answer = fleet.cli("switch", "smol")
    assert answer.exit == 10
    assert (
        "smol runs otherwise than declared: context per request 2048 declared (ctx),"
        " 1024 reported (/props n_ctx)" in answer.result["message"]
    )
    assert fleet.active() == fleet.committed() == ["smol-long"]
    # What a person starts by hand stays, and the status says what is wrong with it.
    fleet.box.run(
        "systemctl stop appliance-backend-smol-long; systemctl start appliance-backend-smol"
    )
    said = "context per request 2048 declared (ctx), 1024 reported"
    fleet.box.wait_for(f"appliance status | grep -qF '{said}'", timeout_s=60)
    assert fleet.box.run("appliance verify; echo status $?").stdout.endswith("status 1\n")
    unit.write_text(text)
    fleet.box.run("systemctl daemon-reload; appliance restart smol")
    fleet.switch("smol")


def test_bench_measures_it_through_the_gateway(fleet: Fleet) -> None:
    """Effective tok/s are all tokens over the wall time, by the bench's own raw rows."""
    fleet.switch("smol")
    printed = fleet.box.run("appliance bench smol --tokens 8 --json").stdout
    document = json.loads(printed)
    ours = document["appliance"]
    assert ours["leased"]
    assert (ours["valid"], ours["invalid"], document["failed"]) == (True, None, 0)
    rows = [row for row in ours["rows"] if row["run"]]
    wall_s = max(row["ended_s"] for row in rows) - min(row["sent_s"] for row in rows)
    tokens = sum(row["output_tokens"] for row in rows)
    assert tokens == 8 * len(rows) == 40
    assert document["output_throughput"] == pytest.approx(tokens / wall_s)
    assert ours["profiles"][0]["single"]["mean_tok_s"] == pytest.approx(
        sum(8 / (row["ended_s"] - row["sent_s"]) for row in rows) / len(rows)
    )
    # The engine's own clock agrees with the arrival of its tokens.
    assert {row["cached_tokens"] for row in rows} == {0}
    assert all(r["prefill_s"] + r["decode_s"] < r["ended_s"] - r["sent_s"] for r in rows)


def test_it_is_an_ordinary_service(fleet: Fleet) -> None:
    """The model runs as the backends' user in its unit's control group, without privileges."""
    fleet.switch("smol")
    pid = fleet.main_pid("smol")
    group = fleet.show("smol", "ControlGroup")
    assert fleet.box.run(f"grep -c '^0::{group}$' /proc/{pid}/cgroup").stdout == "1\n"
    pids = fleet.box.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").stdout.split()
    assert str(pid) in pids
    users = fleet.box.run(f"ps -o user:32= -p {','.join(pids)}").stdout.split()
    assert set(users) == {f"apl-{NAMES[0]}"}
    status = fleet.box.run(f"cat /proc/{pid}/status").stdout
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status


def test_it_is_back_after_a_reboot(fleet: Fleet) -> None:
    """The committed one, and only that, answers again after a reboot and after a power cut."""
    fleet.switch("smol-long")
    for boot_again in (fleet.box.reboot, fleet.box.power_cut):
        boot_again()
        fleet.wait_serving("smol-long", timeout_s=30)
        assert ask(fleet.box, PORTS["smol-long"], QUESTION, max_tokens=8).strip()
        assert fleet.committed() == ["smol-long"]
