"""Verification of engines: in operations before the commit, of what systemd starts, and on request."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.engine_build import EngineBuild
from appliance.model.errors import UnknownProfileError
from appliance.model.observed import Observed
from appliance.model.operations import Kind, Operation, Outcome, Phase
from appliance.model.profile import Applied, Need
from appliance.model.running_facts import SelfDescription
from appliance.profiles.compilation import ProfileSource, spec_of
from appliance.status.verification import differences
from appliance.supervisor.control_verbs import verification_result
from appliance.supervisor.engine_verifier import EVERY_S
from appliance.switch.goals import goal_of
from appliance.system.profile_files.loading import parse_profile
from appliance.wire.control_events import EndedEvent, PhaseEvent
from tests.fakes.profiles import FakeProfiles, catalogue
from tests.fakes.self_reports import Settings, described, log_of, pages_of, settings_of
from tests.fakes.supervisor_ports import FakePorts
from tests.fakes.virtual_time import advance
from tests.waiting import settle

LLAMA: Final = """
engine = "llama-server"
binary = "/opt/l"
model = "/models/x-Q4_K_M.gguf"
port = 8100
gpus = "all"
ctx = 32768
parallel = 2
kv = "q8_0"
thinking = "off"
speculative = { method = "mtp", tokens = 3 }
[llama-server]
gpu_layers = "all"
flash_attn = true
[patch]
command = ["/opt/patch"]
expect = ["P4", "GUARD"]
"""
VLLM: Final = """
engine = "vllm"
binary = "/opt/v"
model = "/models/x"
port = 8101
ctx = 32768
parallel = 4
kv = "fp8"
thinking = "off"
speculative = { method = "mtp", tokens = 3 }
[vllm]
chat_template = "/etc/x.jinja"
attention_backend = "FLASHINFER"
quantization = "awq"
"""
SGLANG: Final = """
engine = "sglang"
binary = "/opt/s"
model = "/models/x"
port = 8102
ctx = 32768
parallel = 4
kv = "fp8"
thinking = "off"
speculative = { method = "eagle", tokens = 3, model = "/d" }
[sglang]
attention_backend = "fa3"
"""
PROFILES: Final = Path(__file__).parents[3] / "profiles"


def compiled(text: str) -> tuple[Applied, Settings]:
    """Return a profile as it is applied, and the settings of an engine that runs as it declares."""
    profile = parse_profile("x", text.encode())
    source = ProfileSource(path="/etc/x.toml", sha256="0" * 64)
    applied = spec_of(profile, source, InvocationContext(hf_home="/var/hf")).applied
    # The pretend GPUs are smaller than some that profiles are for.
    return replace(applied, need=Need()), settings_of(profile, applied)


class Box:
    """A box with one profile, whose engine runs with some settings."""

    def __init__(self, applied: Applied, settings: Settings) -> None:
        self.applied = applied
        self.catalogue = catalogue(applied)
        self.fakes = FakePorts(self.catalogue)
        self.runs_with(settings)

    def runs_with(self, settings: Settings) -> None:
        """Let the engine report these settings from now on."""
        engine = self.applied.engine
        pages = pages_of(engine, settings)
        self.fakes.backend.described["x"] = described(engine, pages)
        self.fakes.host.log_heads["x"] = log_of(engine, settings)

    async def operate(
        self, kind: Kind, *, serving: bool = False
    ) -> tuple[EndedEvent, list[PhaseEvent]]:
        """Run an operation to its end."""
        if serving:
            self.fakes.serve("x")
        goal = goal_of(
            kind,
            ("x",),
            catalogue=self.catalogue,
            observed=self.fakes.systemd.observed(self.catalogue),
            committed=(),
        )
        operation = Operation(
            id=1,
            kind=kind,
            target=("x",),
            goal=goal,
            boot_id="boot-1",
            requested_by="test",
            began_unix_s=self.fakes.systemd.now_s,
        )
        self.fakes.store.rows[1] = operation
        running = self.fakes.transaction(operation, self.catalogue)
        await running.run()
        events = [event async for event in running.feed.follow()]
        ended = events[-1]
        assert isinstance(ended, EndedEvent)
        return ended, [event for event in events if isinstance(event, PhaseEvent)]


PLANTED: Final[Mapping[str, tuple[str, Mapping[str, object], str]]] = {
    "context halved": (LLAMA, {"ctx": 16384}, "context per request 32768 declared (ctx), 16384"),
    "context enlarged": (LLAMA, {"ctx": 131072}, "32768 declared (ctx), 131072 reported (/props"),
    "one slot fewer": (LLAMA, {"slots": 1}, "requests at once 2 declared (parallel), 1 reported"),
    "type of the cache": (LLAMA, {"kv": "f16"}, "q8_0 declared (kv), f16/f16 reported (log"),
    "no drafts": (LLAMA, {"drafts": 0}, "on declared (speculative), off reported (/slots"),
    "other model file": (LLAMA, {"model": "/models/y.gguf"}, "declared (model), /models/y.gguf"),
    "thinking on": (LLAMA, {"thinking": True}, "thinking off declared (thinking), on reported"),
    "attention off": (LLAMA, {"flash_attn": False}, "flash_attn), off reported (log: flash_attn)"),
    "layers on the CPU": (LLAMA, {"layers": "40/65"}, "gpu_layers), 40 of 65 reported (log"),
    "all on the CPU": (LLAMA, {"layers": "0/0"}, "gpu_layers), 0 reported (log: load_tensors)"),
    "patch missing": (
        LLAMA,
        {"patches": {"P4": True, "GUARD": False}},
        "patch GUARD applied declared (patch.expect), not applied reported (log)",
    ),
    "vllm context": (VLLM, {"ctx": 16384}, "32768 declared (ctx), 16384 reported (/v1/models"),
    "vllm slots": (VLLM, {"slots": 3}, "4 declared (parallel), 3 reported (log: max_num_seqs)"),
    "vllm cache": (VLLM, {"kv": "auto"}, "fp8 declared (kv), auto reported (/metrics"),
    "vllm drafts": (VLLM, {"drafts": 0}, "off reported (log: speculative_config)"),
    "vllm draft tokens": (VLLM, {"drafts": 2}, "3 declared (speculative.tokens), 2 reported"),
    "vllm template": (VLLM, {"template": "/etc/y.jinja"}, "/etc/y.jinja reported (log"),
    "vllm thinking": (VLLM, {"thinking": True}, "on reported (log: default_chat_template_kwargs)"),
    "vllm model": (VLLM, {"model": "/models/y"}, "/models/y reported (/v1/models root)"),
    "vllm on the CPU": (VLLM, {"layers": "0/0"}, "all declared (gpus), cpu reported (log"),
    "sglang slots": (SGLANG, {"slots": 3}, "3 reported (/server_info effective_max_running"),
    "sglang drafts": (SGLANG, {"drafts": 0}, "off reported (/server_info speculative_algo"),
    "sglang attention": (SGLANG, {"attention": "triton"}, "fa3 declared ([sglang] attention_back"),
    "sglang thinking": (SGLANG, {"thinking": True}, "on reported (/server_info default_chat"),
    "sglang draft model": (SGLANG, {"draft_model": "/e"}, "/d declared (speculative.model), /e"),
    "vllm attention": (VLLM, {"attention": "TRITON_ATTN"}, "TRITON_ATTN reported (log: attention"),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
async def test_a_planted_mismatch_is_named_before_the_commit(
    planted: tuple[str, dict[str, object], str],
) -> None:
    """A switch to an engine that runs otherwise than declared is undone, with both values and the source."""
    text, changes, words = planted
    applied, settings = compiled(text)
    box = Box(applied, replace(settings, **changes))  # type: ignore[arg-type]
    ended, phases = await box.operate(Kind.SWITCH)
    assert words in ended.message
    assert ended.outcome is Outcome.FAILED, "nothing served before that could come back"
    assert Phase.COMMIT not in {e.phase for e in phases if not e.rolling_back}
    assert box.fakes.commitment.names == ()


@pytest.mark.parametrize("text", [LLAMA, VLLM, SGLANG], ids=["llama", "vllm", "sglang"])
async def test_an_engine_that_runs_as_declared_is_committed(text: str) -> None:
    """Without a mismatch the phase says how many facts agree, and the commit follows."""
    box = Box(*compiled(text))
    ended, phases = await box.operate(Kind.SWITCH)
    assert ended.outcome is Outcome.DONE
    (verified,) = {e.text for e in phases if e.phase is Phase.VERIFY and "agree" in e.text}
    assert verified.startswith("x: ")
    assert box.fakes.commitment.names == ("x",)


SHIPPED: Final = {path.stem: path.read_text() for path in sorted(PROFILES.glob("*.toml"))}


@pytest.mark.parametrize("text", SHIPPED.values(), ids=SHIPPED)
async def test_no_shipped_profile_is_accused(text: str) -> None:
    """An engine that answers as the real one does is no mismatch, for each profile that ships."""
    box = Box(*compiled(text))
    ended, phases = await box.operate(Kind.SWITCH)
    assert ended.outcome is Outcome.DONE
    told = [e.text for e in phases if e.phase is Phase.VERIFY]
    assert not any("declared (" in one for one in told)
    assert any("agree" in one for one in told)


async def test_an_engine_that_reports_nothing_is_committed() -> None:
    """Facts that an engine does not report are unknown, and no reason against it."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, settings)
    silent = SelfDescription(faults=("/props is not answered", "/slots is not answered"))
    box.fakes.backend.described["x"] = silent
    box.fakes.host.log_heads["x"] = ()
    ended, phases = await box.operate(Kind.SWITCH)
    assert ended.outcome is Outcome.DONE
    assert any(
        e.text == "x: the engine reports nothing about itself;"
        " /props is not answered; /slots is not answered"
        for e in phases
    )


async def test_an_allowed_mismatch_is_committed_and_told() -> None:
    """A difference that the profile allows is told in the phase, and undoes nothing."""
    applied, settings = compiled(LLAMA.replace("ctx =", 'allow_mismatch = ["parallel"]\nctx ='))
    box = Box(applied, replace(settings, slots=1))
    ended, phases = await box.operate(Kind.SWITCH)
    assert ended.outcome is Outcome.DONE
    assert any("2 declared (parallel), 1 reported" in e.text for e in phases)


@pytest.mark.parametrize(
    ("text", "asked", "told"),
    [
        (LLAMA, "version: 11549 (0a1b2c3d)", ""),
        (LLAMA, "version: 10000 (0a1b2c3d)", "10000 (0a1b2c3d) declared (binary), b11549-0a1b"),
        (VLLM, "0.32.0", ""),
        (VLLM, "0.31.0", "0.31.0 declared (binary), 0.32.0 reported (log: version)"),
        (SGLANG, "0.31.0", "0.31.0 declared (binary), 0.32.0 reported (/server_info version)"),
        (LLAMA, "", ""),
    ],
)
async def test_another_build_is_told(text: str, asked: str, told: str) -> None:
    """An engine of another build than the one that was asked for its options is named, and committed."""
    box = Box(*compiled(text))
    box.fakes.host.builds["x"] = EngineBuild(version=asked)
    ended, phases = await box.operate(Kind.SWITCH)
    assert ended.outcome is Outcome.DONE
    said = " ".join(e.text for e in phases if e.phase is Phase.VERIFY)
    assert told in said
    assert ("declared (binary)" in said) == bool(told)


async def test_a_repair_takes_an_engine_as_it_is() -> None:
    """A profile that comes back after a crash serves, whatever it reports."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, replace(settings, slots=1))
    ended, phases = await box.operate(Kind.REPAIR)
    assert ended.outcome is Outcome.DONE
    assert any("1 reported" in e.text for e in phases)


async def test_a_profile_that_serves_already_is_left_alone() -> None:
    """A switch to a profile that serves otherwise than declared commits nothing and stops nothing."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, replace(settings, slots=1))
    ended, _phases = await box.operate(Kind.SWITCH, serving=True)
    assert "1 reported" in ended.message
    assert box.fakes.systemd.observed(box.catalogue).serving() == ("x",)
    assert box.fakes.commitment.names == ()


async def test_what_systemd_starts_is_verified_once() -> None:
    """Each start of a profile that serves is verified within seconds, and not again until the next."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, replace(settings, slots=1))
    seen = Observed(units={})
    verifier = box.fakes.verifier(lambda: (box.catalogue, seen))
    await verifier.turn()
    assert verifier.known() == {}
    box.fakes.serve("x")
    seen = box.fakes.systemd.observed(box.catalogue)
    await verifier.turn()
    assert [fact.topic for fact in differences(verifier.known()["x"])] == ["parallel"]
    box.runs_with(settings)
    await verifier.turn()
    assert (verifier.count, len(differences(verifier.known()["x"]))) == (1, 1)
    box.fakes.systemd.units["x"].main_pid += 1
    await verifier.turn()
    assert (verifier.count, differences(verifier.known()["x"])) == (2, [])
    seen = Observed(units={})
    await verifier.turn()
    assert verifier.known() == {}


async def test_a_profile_that_declares_nothing_is_not_asked() -> None:
    """Without declared facts nothing is read."""
    applied, settings = compiled(LLAMA)
    box = Box(replace(applied, declared=()), settings)
    box.fakes.serve("x")
    seen = box.fakes.systemd.observed(box.catalogue)
    verifier = box.fakes.verifier(lambda: (box.catalogue, seen))
    await verifier.turn()
    assert (verifier.count, verifier.known()) == (0, {})
    row = await verifier.verify(box.applied)
    assert row.facts == []


@pytest.mark.virtual_time
async def test_the_watch_waits_while_an_operation_runs() -> None:
    """An operation verifies what it starts, so the watch looks only between operations."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, settings)
    box.fakes.serve("x")
    seen = box.fakes.systemd.observed(box.catalogue)
    verifier = box.fakes.verifier(lambda: (box.catalogue, seen))
    busy = True
    watch = asyncio.create_task(verifier.run(lambda: busy))
    await settle()
    assert verifier.count == 0
    busy = False
    await advance(EVERY_S)
    await settle()
    assert verifier.count == 1
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_a_start_of_unknown_time_is_verified_without_a_log() -> None:
    """Lines of an earlier start would tell of another engine, so none are read."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, settings)
    row = await box.fakes.verifier(lambda: (box.catalogue, Observed(units={}))).verify(applied)
    states = {fact.topic: fact.state for fact in row.facts}
    assert (states["ctx"], states["kv"]) == ("agrees", "unknown")


async def test_the_verb_compares_anew() -> None:
    """The verb's status is 0 when engines agree, 1 when one breaks a promise, 3 when none serves."""
    applied, settings = compiled(LLAMA)
    box = Box(applied, settings)
    supervisor = box.fakes.supervisor(FakeProfiles(box.catalogue))
    nothing = await verification_result(supervisor, None)
    assert (nothing.exit, nothing.message) == (3, "nothing serves")
    named = await verification_result(supervisor, "x")
    assert (named.exit, named.message) == (3, "x does not serve")
    box.fakes.serve("x")
    work = asyncio.create_task(supervisor.run())
    await supervisor.resumed()
    await settle()
    good = await verification_result(supervisor, "x")
    assert (good.exit, good.message) == (0, "what engines report is what their profiles declare")
    box.fakes.backend.described["x"] = SelfDescription()
    box.fakes.host.log_heads["x"] = ()
    silent = await verification_result(supervisor, "x")
    assert (silent.exit, silent.message) == (0, "no engine reports what could be compared")
    box.runs_with(replace(settings, slots=1))
    bad = await verification_result(supervisor, None)
    assert bad.exit == 1
    assert "x runs otherwise than declared: requests at once 2 declared" in bad.message
    assert [fact.topic for fact in differences(supervisor.verifier.known()["x"])] == ["parallel"]
    with pytest.raises(UnknownProfileError):
        await verification_result(supervisor, "nobody")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_the_verb_tells_of_what_may_differ() -> None:
    """A difference that the profile allows is listed, with status 0."""
    applied, settings = compiled(LLAMA.replace("ctx =", 'allow_mismatch = ["parallel"]\nctx ='))
    box = Box(applied, replace(settings, slots=1))
    box.fakes.serve("x")
    supervisor = box.fakes.supervisor(FakeProfiles(box.catalogue))
    work = asyncio.create_task(supervisor.run())
    await supervisor.resumed()
    await settle()
    found = await verification_result(supervisor, None)
    assert (found.exit, found.message) == (0, "nothing differs but what may")
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
