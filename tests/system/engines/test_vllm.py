"""A real vLLM under the appliance: it serves, switches, dies in several ways and comes back.

The tests build on one another's starts, because each costs half a minute: they run in order.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.fakes.vllm_page import RECORDED, page_facts
from tests.system.chat import ask, ask_streaming, pieces
from tests.system.engines.installation import VERSION
from tests.system.fleet import Answer, Fleet
from tests.system.rig import Stream

EAGER, COMPILED = "eager", "compiled"
PORTS = {EAGER: 8041, COMPILED: 8042}
FRONT = 8010
STREAMS = 4
QUESTION = "Tell me about the sea."
PATIENCE_S = 1200
RECORDS = "/var/lib/appliance-applied/builds"
GIVEN = {
    *("--max-model-len", "--max-num-seqs", "--kv-cache-dtype", "--dtype", "--reasoning-parser"),
    *("--enable-auto-tool-choice", "--tool-call-parser", "--default-chat-template-kwargs"),
    *("--generation-config", "--override-generation-config", "--enable-prefix-caching"),
    *("--enable-chunked-prefill", "--max-num-batched-tokens", "--enforce-eager"),
    *("--disable-custom-all-reduce", "--trust-remote-code", "--kv-cache-memory-bytes"),
}
"""Options of the eager profile that are written from its keys."""
CACHE = f"/var/cache/appliance-backend/{COMPILED}"


def ready_s(answer: Answer) -> float:
    """Seconds from the start of the unit to the first 200 on its health path."""
    phases: dict[str, float] = answer.result["phases_ms"]
    return round((phases.get("start", 0.0) + phases.get("load", 0.0)) / 1000, 1)


def cpu_s(fleet: Fleet, name: str) -> float:
    """Seconds of CPU that the unit has used since it started: what a busy machine does not change."""
    return round(int(fleet.show(name, "CPUUsageNSec")) / 1e9, 1)


def pid_of(fleet: Fleet, name: str, title: str) -> int:
    """The one process of a profile's unit whose title contains some text."""
    group = fleet.show(name, "ControlGroup")
    pids = fleet.box.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").stdout.split()
    listed = fleet.box.run(f"ps -ww -o pid=,args= -p {','.join(pids)}").stdout.splitlines()
    (pid,) = (line.split()[0] for line in listed if title in line)
    return int(pid)


def switch(fleet: Fleet, name: str) -> Answer:
    """Switch, which takes as long as vLLM does; insist that it worked."""
    # Longer than a busy machine takes for what it answers: the deadline itself is not the subject.
    answer = fleet.cli("switch", name, "--drain", "3m", timeout_s=PATIENCE_S)
    assert answer.exit == 0, (answer, fleet.box.journal("-n80"))
    return answer


def answers_again_s(fleet: Fleet, name: str, *, dead: int) -> float:
    """Seconds until another main process than `dead` answers a question."""
    began_s = time.monotonic()
    while time.monotonic() - began_s < PATIENCE_S:
        if fleet.main_pid(name) not in {0, dead} and fleet.active() == [name]:
            assert ask(fleet.box, PORTS[name], QUESTION, model="smollm2", max_tokens=8).strip()
            return round(time.monotonic() - began_s, 1)
        time.sleep(0.5)
    raise AssertionError(fleet.box.journal("-n80"))


def test_vllm_serves_under_the_hardened_unit(fleet: Fleet, figures: dict[str, Any]) -> None:
    """An engine in its sandbox answers in one piece and, with the same words, as a stream."""
    figures["ready_s"] = ready_s(switch(fleet, EAGER))
    figures["ready_cpu_s"] = cpu_s(fleet, EAGER)
    same = {"model": "smollm2", "max_tokens": 24, "temperature": 0, "seed": 1}
    whole = ask(fleet.box, PORTS[EAGER], QUESTION, **same)
    assert len(whole.split()) > 3
    with ask_streaming(fleet.box, PORTS[EAGER], QUESTION, **same) as stream:
        parts = [piece["choices"][0]["delta"].get("content") for piece in pieces(stream)]
    assert "".join(filter(None, parts)) == whole
    status = fleet.box.run(f"cat /proc/{fleet.main_pid(EAGER)}/status").stdout
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    group = fleet.show(EAGER, "ControlGroup")
    pids = fleet.box.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").stdout.split()
    kib = fleet.box.run(f"ps -o rss= -p {','.join(pids)}").stdout.split()
    figures["resident_gib"] = round(sum(map(int, kib)) / (1 << 20), 1)


def test_build_of_vllm_has_what_its_profile_uses(fleet: Fleet, figures: dict[str, Any]) -> None:
    """The question that a switch asks reads version and options in the installed sources, and misses none."""
    build = json.loads(fleet.box.run(f"appliance show {EAGER} --json").stdout)["build"]
    assert (build["version"], build["problem"], build["lacks"]) == (f"{VERSION}+cpu", "", [])
    record = json.loads(fleet.box.run(f"cat {RECORDS}/{EAGER}.json").stdout)
    figures["options"] = len(record["options"])
    assert {"--port", "--uds", "--tool-call-parser", "--max-num-seqs"} <= record["options"].keys()
    # Every option that the unit gives was written from the profile, or is always the appliance's.
    words = fleet.box.run(f"tr '\\0' '\\n' < /proc/{fleet.main_pid(EAGER)}/cmdline").stdout.split()
    given = {word for word in words if word.startswith("--")}
    figures["options_given"] = len(given)
    assert GIVEN <= given <= record["options"].keys()


def test_vllm_runs_as_its_profile_declares(fleet: Fleet, figures: dict[str, Any]) -> None:
    """Context, requests at a time, cache, place, thinking and model are on its pages or in its log, and agree."""
    (row,) = json.loads(fleet.box.run(f"appliance verify {EAGER} --json").stdout)["profiles"]
    states = {fact["topic"]: fact["state"] for fact in row["verification"]["facts"]}
    topics = ("ctx", "parallel", "kv", "gpu_layers", "thinking", "model", "speculative", "build")
    assert states == dict.fromkeys(topics, "agrees")
    assert row["verification"]["faults"] == []
    figures["facts_agree"] = len(states)


def read_whole(stream: Stream) -> None:
    """Read an answer to its end mark; an error event, the gateway's last where it cannot go on, is raised."""
    for piece in pieces(stream):
        if "error" in piece:
            raise AssertionError(json.dumps(piece))


def test_page_of_metrics_is_the_recorded_one(fleet: Fleet, figures: dict[str, Any]) -> None:
    """Series and labels of the real page are those that were recorded, and the fake and vLLM's board have no others.

    They come through the page of all engines as well, each with its profile.
    """
    page = fleet.box.run(f"curl -sSf -m 20 127.0.0.1:{PORTS[EAGER]}/metrics").stdout
    facts = page_facts(page)
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    assert facts == json.loads(RECORDED.read_text(encoding="utf-8"))
    merged = page_facts(fleet.box.run("curl -sSf -m 20 127.0.0.1:8011/metrics/engine").stdout)
    assert merged == {name: sorted([*labels, "profile"]) for name, labels in facts.items()}
    figures["metrics"] = len(facts)


class Streaming(threading.Thread):
    """A client of the gateway that streams one answer after the other."""

    def __init__(self, fleet: Fleet, enough: threading.Event) -> None:
        super().__init__(daemon=True)
        self.whole = 0
        self.cut: list[str] = []
        self._fleet = fleet
        self._enough = enough

    def run(self) -> None:
        """Ask until it is enough."""
        while not self._enough.is_set():
            try:
                asked = ask_streaming(
                    self._fleet.box, FRONT, QUESTION, model="default", max_tokens=24
                )
                with asked as stream:
                    read_whole(stream)
                self.whole += 1
            except (AssertionError, OSError, ValueError) as error:
                self.cut.append(f"{type(error).__name__}: {error}")


def test_switches_under_streaming_clients_cut_nothing(
    fleet: Fleet, figures: dict[str, Any]
) -> None:
    """Four clients that never stop streaming get each answer whole, over two switches."""
    enough = threading.Event()
    clients = [Streaming(fleet, enough) for _ in range(STREAMS)]
    for client in clients:
        client.start()
    time.sleep(3)
    for name in ("smol", EAGER):
        switch(fleet, name)
        time.sleep(3)
    enough.set()
    for client in clients:
        client.join(PATIENCE_S)
    figures["switched"] = 2
    figures["streamed"] = sum(client.whole for client in clients)
    cut = [text for client in clients for text in client.cut]
    figures["cut"] = len(cut)
    assert not cut, fleet.box.journal("-n80")
    assert all(client.whole for client in clients)


def test_frozen_worker_of_vllm_is_found(fleet: Fleet, figures: dict[str, Any]) -> None:
    """A stopped EngineCore, of which the health path knows nothing, shows in the status."""
    worker = str(pid_of(fleet, EAGER, "EngineCore"))
    fleet.box.run("kill", "-STOP", worker)
    began_s = time.monotonic()
    with ask_streaming(fleet.box, FRONT, QUESTION, model="default", max_tokens=8) as waiting:
        while not (stall := stall_of(fleet)) and time.monotonic() - began_s < PATIENCE_S:
            time.sleep(2)
        figures["frozen_found_s"] = round(time.monotonic() - began_s, 1)
        healthy = fleet.box.run(f"curl -sf -m 5 127.0.0.1:{PORTS[EAGER]}/health", check=False)
        fleet.box.run("kill", "-CONT", worker)
        assert stall is not None
        assert stall["in_flight"] == 1
        assert healthy.returncode == 0
        assert list(pieces(waiting))


def stall_of(fleet: Fleet) -> Mapping[str, Any] | None:
    """Return the status's sentence on an engine without progress; None: none."""
    rows = [row for row in fleet.status()["profiles"] if row["name"] == EAGER]
    found: Mapping[str, Any] | None = rows[0]["stall"]
    return found


@pytest.mark.parametrize("who", ["engine_core", "main"])
def test_killed_vllm_answers_again_without_a_hand(
    fleet: Fleet, figures: dict[str, Any], who: str
) -> None:
    """Whichever of its processes is killed, it serves again, though vLLM may end with status 0."""
    main = fleet.main_pid(EAGER)
    victim = main if who == "main" else pid_of(fleet, EAGER, "EngineCore")
    fleet.box.run("kill", "-KILL", str(victim))
    figures[f"{who}_killed_answers_again_s"] = answers_again_s(fleet, EAGER, dead=main)
    assert fleet.committed() == [EAGER]


def test_failed_start_of_vllm_shows_its_real_error(fleet: Fleet, figures: dict[str, Any]) -> None:
    """A start that fails is told by vLLM's own reason, and what served before serves again."""
    switch(fleet, "smol")
    answer = fleet.cli("switch", "no-cache", timeout_s=PATIENCE_S)
    assert answer.exit == 10, answer
    assert fleet.active() == ["smol"]
    log = answer.result["log"]
    figures["failed_start"] = next((t for t in log if t.startswith("ValueError: ")), "")
    assert figures["failed_start"].startswith("ValueError: No available memory for the cache")
    assert not any("Traceback" in text or "█" in text for text in log)


def test_second_start_reuses_what_the_first_compiled(fleet: Fleet, figures: dict[str, Any]) -> None:
    """No graph, object or precompiled header is compiled twice, and no socket is left in the cache.

    The files of the first start are the second's own, whatever number its user has.
    """
    first, second = f"{COMPILED}_first", f"{COMPILED}_second"
    figures[f"{first}_s"] = ready_s(switch(fleet, COMPILED))
    figures[f"{first}_cpu_s"] = cpu_s(fleet, COMPILED)
    before = compiled_files(fleet)
    assert any(name.endswith(".gch") for name in before), before
    assert any(f"{CACHE}/inductor/fxgraph/" in name for name in before), before
    switch(fleet, "smol")
    figures[f"{second}_s"] = ready_s(switch(fleet, COMPILED))
    figures[f"{second}_cpu_s"] = cpu_s(fleet, COMPILED)
    after = compiled_files(fleet)
    figures["compiled_again"] = len(after - before)
    figures["compile_caches_mib"] = int(fleet.box.run(f"du -sm {CACHE}/").stdout.split()[0])
    assert figures["compiled_again"] == 0
    assert before <= after
    assert not fleet.box.run(f"find {CACHE}/ -type s").stdout
    user = fleet.box.run(f"ps -o uid= -p {fleet.main_pid(COMPILED)}").stdout.strip()
    assert user != "0"
    assert not fleet.box.run(f"find {CACHE}/ ! -uid {user}").stdout
    # Where systemd keeps the directories of users that it makes.
    assert fleet.box.run(f"readlink -f {CACHE}").stdout.startswith("/var/cache/private/")


def compiled_files(fleet: Fleet) -> set[str]:
    """Graphs, objects and precompiled headers in the profile's cache directory, each with its time."""
    kinds = " -o ".join(
        (
            *(f"-name '*.{kind}'" for kind in ("so", "o", "gch", "pch")),
            *(f"-path '*/{cache}/*'" for cache in ("aotautograd", "fxgraph")),
        )
    )
    found = fleet.box.run(f"find {CACHE}/ -type f \\( {kinds} \\) -printf '%T@ %p\\n'").stdout
    return set(found.splitlines())
