"""Engines as a probe meets them through a `FakeProbeLane`: their times follow from their rates."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.probe_lane import LaneAnswer, LaneRequest

CHARACTERS_A_TOKEN = 3
FIRST_TOKENS = 1
"""Token that begins each prompt."""


def event_stream(*events: Mapping[str, object]) -> list[bytes]:
    """Return the pieces of a stream with these events and its end."""
    return [*(f"data: {json.dumps(event)}\n\n".encode() for event in events), b"data: [DONE]\n\n"]


def text_event(text: str = "x") -> Mapping[str, object]:
    """Return the event of one token."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


@dataclass
class LlamaCppModel:
    """llama.cpp's server with one slot: it keeps the last prompt, and tells its timings."""

    prefill_tok_s: float = 1000.0
    decode_tok_s: float = 50.0
    overhead_s: float = 0.001
    """Time that each prompt takes beside its tokens."""
    keeps_prefix: bool = True
    """Whether the model's state can be cut to a prefix: that of a recurrent model cannot."""
    tells_timings: bool = True
    version: str = "b11549-0ab1c2d"
    evaluated: list[int] = field(default_factory=list)
    """Prompt tokens that each request evaluated."""
    slot: str = ""
    """Prompt that the slot holds."""

    def answer(self, request: LaneRequest) -> LaneAnswer:
        if request.body is None:
            page = json.dumps({"build_info": self.version}).encode()
            found = request.path == "/props"
            return LaneAnswer(pieces=[(0.001, page)], status=200 if found else 404)
        prompt, cached = prompt_of(request.body), 0
        if request.body.get("cache_prompt") and self.keeps_prefix:
            cached = _common(self.slot, prompt) // CHARACTERS_A_TOKEN
        self.slot = prompt
        total = len(prompt) // CHARACTERS_A_TOKEN + FIRST_TOKENS
        evaluated, output = total - cached, int(str(request.body["n_predict"]))
        self.evaluated.append(evaluated)
        prefill_s = self.overhead_s + evaluated / self.prefill_tok_s
        decode_s = (output - 1) / self.decode_tok_s
        last: dict[str, object] = {
            "choices": [],
            "usage": {"prompt_tokens": total, "completion_tokens": output},
        }
        if self.tells_timings:
            last["timings"] = {
                "cache_n": cached,
                "prompt_n": evaluated,
                "prompt_ms": prefill_s * 1e3,
                "predicted_n": output,
                "predicted_ms": decode_s * 1e3,
            }
        first, *others = event_stream(*[text_event()] * output, last)
        gaps = [1 / self.decode_tok_s] * (output - 1)
        return LaneAnswer(
            pieces=[
                (prefill_s, first),
                *zip([*gaps, *[0.0] * (len(others) - len(gaps))], others, strict=True),
            ]
        )


@dataclass
class VllmModel:
    """vLLM: its response tells usage alone, its metrics count a request some readings later."""

    prefill_s: float = 0.2
    decode_tok_s: float = 50.0
    lag: int = 0
    """Number of readings of the metrics that do not have the last request yet."""
    others: int = 0
    """Number of requests of others that end with each of ours."""
    finished: int = 3
    behind: int = 0
    decode_s: float = 30.0
    prefill_sum_s: float = 2.0

    def answer(self, request: LaneRequest) -> LaneAnswer:
        if request.body is None:
            pages = {"/version": '{"version": "0.32.0"}', "/metrics": self._metrics()}
            found = pages.get(request.path)
            return LaneAnswer(
                pieces=[(0.001, (found or "").encode())], status=404 if found is None else 200
            )
        output = int(str(request.body["max_tokens"]))
        self.finished += 1 + self.others
        self.decode_s += (output - 1) / self.decode_tok_s
        self.prefill_sum_s += self.prefill_s
        self.behind = self.lag
        usage = {"prompt_tokens": 100, "completion_tokens": output}
        first, *others = event_stream(*[text_event()] * output, {"choices": [], "usage": usage})
        gaps = [1 / self.decode_tok_s] * (output - 1)
        # Half as fast to the client as in the engine: a stream measures less than the metrics.
        waits = [*(2 * gap for gap in gaps), *[0.0] * (len(others) - len(gaps))]
        return LaneAnswer(pieces=[(self.prefill_s, first), *zip(waits, others, strict=True)])

    def _metrics(self) -> str:
        late = self.behind > 0
        self.behind = max(0, self.behind - 1)
        finished = self.finished - 1 - self.others if late else self.finished
        return (
            f'vllm:request_success_total{{finished_reason="length"}} {finished}.0\n'
            f"vllm:request_prefill_time_seconds_sum {self.prefill_sum_s}\n"
            f"vllm:request_decode_time_seconds_sum {self.decode_s}\n"
        )


def prompt_of(body: Mapping[str, Any]) -> str:
    """Return the prompt of a request."""
    messages = body.get("messages")
    return str(messages[0]["content"] if messages else body["prompt"])


def _common(one: str, other: str) -> int:
    """Return the length of the prefix that two texts share."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
