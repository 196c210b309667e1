"""What the end of an answer says about it: tokens and speed, and whether it was a stream.

The answer itself is passed on unread; a look at its last kilobytes costs a microsecond. In JSON
a quotation mark inside a text is escaped, so that nothing a model writes is taken for a key.
"""

import re
from typing import Final

_TOKENS: Final = (b'"completion_tokens"', b'"output_tokens"', b'"predicted_n"')
"""OpenAI's completions, its responses and Anthropic's messages, llama.cpp's ``timings``."""
_SPEED: Final = b'"predicted_per_second"'
_WHOLE: Final = re.compile(rb'"\s*:\s*([0-9]{1,9})(?![0-9.eE])')
_REAL: Final = re.compile(rb'"\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,17})?)')
_LINES: Final = (b"data:", b"event:", b"\ndata:", b"\nevent:")
"""How events begin; a newline within JSON's texts is escaped as well."""


def is_stream(tail: bytes) -> bool:
    """Whether these are the last bytes of server-sent events."""
    head = tail[:1]
    if head in {b"{", b"["}:
        return False
    return tail.startswith(_LINES[:2]) or tail.rfind(_LINES[2]) >= 0 or tail.rfind(_LINES[3]) >= 0


def output_tokens(tail: bytes) -> int | None:
    """How many tokens the answer had; None: it does not say."""
    for key in _TOKENS:
        at = tail.rfind(key)
        if at >= 0 and (found := _WHOLE.match(tail, at + len(key) - 1)):
            return int(found[1])
    return None


def tok_s(tail: bytes) -> float | None:
    """How fast they came, as the engine measured it, without the wait before; None: nothing said."""
    at = tail.rfind(_SPEED)
    if at < 0:
        return None
    found = _REAL.match(tail, at + len(_SPEED) - 1)
    speed = float(found[1]) if found else 0.0
    return speed if speed > 0 else None
