"""Parser of usage: output tokens, speed and cached prompt tokens from the last bytes of a response.

The response itself is passed on unread; searching its last kilobytes costs a microsecond. In JSON
a quotation mark inside a text is escaped, so that nothing a model writes is taken for a key.
"""

import re
from collections.abc import Sequence
from typing import Final

_TOKENS: Final = (b'"completion_tokens"', b'"output_tokens"', b'"predicted_n"')
"""Keys of OpenAI's completions and responses, of Anthropic's messages, and of llama.cpp."""
_CACHED: Final = b'"cached_tokens"'
_PROMPT: Final = (b'"prompt_tokens"', b'"input_tokens"')
"""Keys of OpenAI's completions and responses; the cached tokens are among these."""
_EVALUATED: Final = b'"prompt_n"'
_REUSED: Final = b'"cache_n"'
"""Keys of llama.cpp's timings; the reused tokens are beside those that were evaluated."""
_SPEED: Final = b'"predicted_per_second"'
"""Key of llama.cpp's timings, which all have."""
_INTEGER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9})(?![0-9.eE])')
_NUMBER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,17})?)')
Usage = tuple[int | None, float | None, tuple[int, int | None] | None]
"""Output tokens; decoding speed in tokens/s; prompt tokens, and how many of them the engine's prefix cache held."""
_LINES: Final = (b"data:", b"event:", b"\ndata:", b"\nevent:")
"""Beginnings of events; a newline within a JSON string is escaped as well."""


def is_stream(tail: bytes) -> bool:
    """Tell whether these are the last bytes of server-sent events."""
    head = tail[:1]
    if head in {b"{", b"["}:
        return False
    return tail.startswith(_LINES[:2]) or tail.rfind(_LINES[2]) >= 0 or tail.rfind(_LINES[3]) >= 0


def parse_output_tokens(tail: bytes) -> int | None:
    """Return the number of output tokens; None: not reported."""
    return _parse_first(tail, _TOKENS)


def parse_usage(tail: bytes) -> Usage:
    """Return everything that is reported, each None where it is not."""
    tokens, prompt = _parse_first(tail, _TOKENS), _parse_first(tail, _PROMPT)
    cached, speed = _parse_count(tail, _CACHED), None
    # A search that finds nothing reads the whole tail: only as many as are needed.
    if (at := tail.rfind(_SPEED)) >= 0:
        found = _NUMBER.match(tail, at + len(_SPEED) - 1)
        speed = (float(found[1]) or None) if found else None
        if cached is None and (evaluated := _parse_count(tail, _EVALUATED)) is not None:
            cached = _parse_count(tail, _REUSED)
            prompt = prompt if cached is None else evaluated + cached
    if prompt is None:
        return tokens, speed, None
    return tokens, speed, (prompt, cached if cached is not None and cached <= prompt else None)


def _parse_first(tail: bytes, keys: Sequence[bytes]) -> int | None:
    """Return the last number under the first of the keys that is there."""
    for key in keys:
        if (found := _parse_count(tail, key)) is not None:
            return found
    return None


def _parse_count(tail: bytes, key: bytes) -> int | None:
    at = tail.rfind(key)
    if at >= 0 and (found := _INTEGER.match(tail, at + len(key) - 1)):
        return int(found[1])
    return None
