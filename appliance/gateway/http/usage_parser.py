"""Parser of usage: output tokens and speed from the last bytes of a response.

The response itself is passed on unread; searching its last kilobytes costs a microsecond. In JSON
a quotation mark inside a text is escaped, so that nothing a model writes is taken for a key.
"""

import re
from typing import Final

_TOKENS: Final = (b'"completion_tokens"', b'"output_tokens"', b'"predicted_n"')
"""Keys of OpenAI's completions and responses, of Anthropic's messages, and of llama.cpp."""
_SPEED: Final = b'"predicted_per_second"'
_INTEGER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9})(?![0-9.eE])')
_NUMBER: Final = re.compile(rb'"\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,17})?)')
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
    for key in _TOKENS:
        at = tail.rfind(key)
        if at >= 0 and (found := _INTEGER.match(tail, at + len(key) - 1)):
            return int(found[1])
    return None


def parse_tok_s(tail: bytes) -> float | None:
    """Return the decoding speed that the engine reports; None: not reported."""
    at = tail.rfind(_SPEED)
    if at < 0:
        return None
    found = _NUMBER.match(tail, at + len(_SPEED) - 1)
    speed = float(found[1]) if found else 0.0
    return speed if speed > 0 else None
