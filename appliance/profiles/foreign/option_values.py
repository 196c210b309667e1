"""Values in the words of command lines: switches, numbers with units, repositories, secrets."""

import re
from typing import Final

from appliance.model.json_reader import decode_json

HF_REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?::[\w.-]+)?\Z", re.ASCII)
"""Pattern of ``owner/name`` and ``owner/name:quant``."""
SECRET: Final = re.compile(r"key|token\b|secret|passw", re.IGNORECASE)
"""Pattern of names whose values are not shown."""
HIDDEN: Final = "…"
_TRUE: Final = frozenset({"", "on", "true", "1", "yes", "enabled"})
_FALSE: Final = frozenset({"off", "false", "0", "no", "disabled"})
_UNITS: Final = {"k": 1000, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}
_MOST_DIGITS: Final = 15


def truth_of(text: str) -> bool | None:
    """Return what a switch is set to by a text such as ``on``; None: it is no such text."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    return False if word in _FALSE else None


def whole_number(text: str) -> int | None:
    """Return the number in ``4096``, ``32k`` (thousands) or ``32K`` (1024 each); None: it is none.

    The units are those of vLLM's options (vllm/engine/arg_utils.py, human_readable_int).
    """
    unit = _UNITS.get(text[-1:], 1)
    digits = text[:-1] if unit != 1 else text
    sign = -1 if digits.startswith("-") else 1
    digits = digits.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        return None
    return sign * int(digits) * unit


def json_table(text: str) -> dict[str, object] | None:
    """Return the JSON object in a text; None: it has none."""
    try:
        value = decode_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def json_word(text: str) -> object:
    """Return a word as JSON has it where it is a number or a truth value, else the text."""
    try:
        value = decode_json(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
