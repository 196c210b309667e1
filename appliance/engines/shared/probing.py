"""Types of an engine's part in a probe: request parameters, timings in its response, its version."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.model.json_reader import decode_json

_MOST: Final = 1 << 31
"""Limit of tokens and of milliseconds."""
_MOST_VERSION: Final = 120
_NO_THINKING: Final[Mapping[str, object]] = {"chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseTimings:
    """Times of one request as its own response tells them."""

    evaluated_tokens: int
    """Prompt tokens that were evaluated: those that the prefix cache did not hold."""
    prefill_s: float
    cached_tokens: int | None
    """None: not told."""
    output_tokens: int
    decode_s: float
    """From the first output token to the last: one token fewer than `output_tokens`."""
    drafted_tokens: int | None
    """None: not told, as for the next."""
    accepted_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionPage:
    """Page of an engine that tells its version, as JSON."""

    path: str
    key: str
    """Member of the page's object with the version."""

    def read(self, text: str) -> str | None:
        """Return the version in the page's text; None: the page does not tell."""
        try:
            document = decode_json(text)
        except ValueError:
            return None
        value = document.get(self.key) if isinstance(document, dict) else None
        return value if isinstance(value, str) and 0 < len(value) <= _MOST_VERSION else None


def exact_length(output_tokens: int, salt: str) -> Mapping[str, object]:
    """Return parameters for exactly so many tokens, as vLLM and SGLang take them.

    Both keep cached prefixes of requests with different `cache_salt` apart, also the beginning that
    the chat template writes before the prompt (vllm/entrypoints/openai and
    sglang/srt/entrypoints/openai/protocol.py, as of November 2026; older builds ignore it).
    """
    return {
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "cache_salt": salt,
    }


def no_timings(_event: Mapping[str, object]) -> ResponseTimings | None:
    """Return None: the engine's responses have no timings."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Names and values that an engine uses where a probe measures it."""

    parameters: Callable[[int, str], Mapping[str, object]] = exact_length
    """Function that returns, for a number of output tokens and a salt, the request parameters by
    which the engine generates exactly as many tokens and reuses no cached prompt."""
    chat_parameters: Mapping[str, object] = field(default_factory=lambda: _NO_THINKING)
    """Further parameters of a chat request: the template writes no thinking."""
    timings: Callable[[Mapping[str, object]], ResponseTimings | None] = no_timings
    """Function that reads the timings in one event of a response; None: it has none."""
    piece_parameters: Mapping[str, object] | None = None
    """Further parameters of a request whose prompt goes on where that of the one before ended: the
    engine evaluates only the rest, its timings tell how much that was, and it completes texts
    without a chat template. None: the engine gives way to a real request in the middle of a prompt,
    or does not tell."""
    has_metrics: bool = True
    """Whether the page ``/metrics`` may tell the times of a request."""
    version_page: VersionPage | None = None
    """None: no page tells it."""
    version_of_module: str = ""
    """Module of the appliance's own Python whose package has the version; empty: none."""


def count(value: object) -> int | None:
    """Return `value` if it is a whole number that a probe can reach; else None."""
    return value if type(value) is int and 0 <= value <= _MOST else None


def seconds(milliseconds: object) -> float | None:
    """Return milliseconds as seconds; None: not a number that a probe can reach."""
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    return milliseconds / 1e3 if 0 <= milliseconds <= _MOST else None
