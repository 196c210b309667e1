"""Prompts of probes: five coding tasks in rotation for decoding, and one long text for prefill.

Every prompt begins with a salt that no other probe has, so that no prefix cache holds it. Texts
never change: each has a baseline of its own. A different wording gets a different name.
"""

from collections.abc import Mapping
from typing import Final

from appliance.model.words import Series

CODING_TASKS: Final[Mapping[str, str]] = {
    "lru-cache": (
        "Implement a least-recently-used cache in Python. It has a fixed capacity, get and put take "
        "constant time, and an entry may expire after a number of seconds given to put. Explain the "
        "data structures, then write the class with type hints and docstrings."
    ),
    "merge-sort": (
        "The following merge sort loses elements for some inputs. Find each mistake, explain for "
        "which inputs it shows, and write the corrected function.\n\n"
        "def merge_sort(items):\n"
        "    if len(items) < 2:\n"
        "        return items\n"
        "    middle = len(items) // 2\n"
        "    left, right = merge_sort(items[:middle]), merge_sort(items[middle + 1:])\n"
        "    merged, i, j = [], 0, 0\n"
        "    while i < len(left) and j < len(right):\n"
        "        if left[i] < right[j]:\n"
        "            merged.append(left[i]); i += 1\n"
        "        else:\n"
        "            merged.append(right[j]); j += 1\n"
        "    return merged + left[i:]\n"
    ),
    "cron-parser": (
        "Write tests with pytest for a function parse_cron(text) that parses the five fields of a "
        "cron expression: numbers, ranges, lists, steps and names of months and weekdays. Cover "
        "valid expressions, each kind of mistake, and the limits of every field. Say first which "
        "cases you test and why."
    ),
    "web-route": (
        "Refactor this web route. Separate validation, storage and response, handle errors, and "
        "keep its behaviour for valid requests. Explain each step.\n\n"
        "@app.route('/orders', methods=['POST'])\n"
        "def orders():\n"
        "    d = request.json\n"
        "    if d['n'] > 0 and d['sku'] != '':\n"
        "        db.execute(\"insert into orders values ('%s', %s)\" % (d['sku'], d['n']))\n"
        "        mail(d['email'], 'Thank you for ' + str(d['n']))\n"
        "        return {'ok': True}\n"
        "    return {'ok': False}\n"
    ),
    "rate-limiter": (
        "Design a rate limiter for an HTTP service that runs on several machines. Each client may "
        "send a burst of requests, and a steady rate after it. Compare a token bucket with a sliding "
        "window, say where the counters are kept and what happens when that store fails, and write "
        "the core of it in Python."
    ),
}
"""Tasks by name, in the order of their rotation."""
PREFILL: Final = "prefill"
"""Name of the long prompt, followed by its size where that is not the full one, and by the size of
its pieces where it is sent in several: ``prefill-512/p64``. Each has a baseline of its own."""
PREFILL_TOKENS: Final = 2048
CHARACTERS_A_TOKEN: Final = 3
"""The report takes 3.2 characters a token in the vocabulary of SmolLM2, for its many numbers."""
_PIECES: Final = "/p"
_STATIONS: Final = ("north", "harbour", "mill", "bridge", "forest", "quarry", "airfield")
_FINDINGS: Final = (
    "the pump ran without a pause and its bearing stayed cool",
    "two of the filters were dark and have been replaced by new ones",
    "the level in the upper basin had fallen by a hand since the last visit",
    "the meter of the second line counted slower than the one beside it",
    "a fuse had melted, probably in the storm of that night",
    "nothing was found that is not already in the list of the spring",
)


def coding_task(number: int) -> str:
    """Return the name of the task of the probe `number`, counted from 0."""
    names = tuple(CODING_TASKS)
    return names[number % len(names)]


def series_of(name: str) -> Series:
    """Return the series that a valid probe with the prompt `name` belongs to."""
    return Series.DECODE if name in CODING_TASKS else Series.PREFILL


def prefill_name(tokens: int, piece_tokens: int | None = None) -> str:
    """Return the name of the long prompt of about so many tokens.

    Args:
        tokens: Its size.
        piece_tokens: Size of the pieces in which it is sent; None: in one.
    """
    name = PREFILL if tokens == PREFILL_TOKENS else f"{PREFILL}-{tokens}"
    in_one = piece_tokens is None or piece_tokens >= tokens
    return name if in_one else f"{name}{_PIECES}{piece_tokens}"


def piece_tokens_of(name: str) -> int | None:
    """Return the size of the pieces in which the long prompt `name` is sent; None: in one."""
    _, _, size = name.partition(_PIECES)
    return int(size) if size else None


def in_one_piece(name: str) -> str:
    """Return the name of the same prompt sent in one request."""
    return name.partition(_PIECES)[0]


def prompt_text(name: str, salt: str) -> str:
    """Return the prompt `name`, which must be one of this module, after a salt."""
    task = CODING_TASKS.get(name)
    if task is None:
        size = in_one_piece(name).removeprefix(PREFILL).removeprefix("-")
        task = _report(int(size) if size else PREFILL_TOKENS)
    return f"{salt}\n\n{task}"


def _report(tokens: int) -> str:
    """Return a text of about so many tokens, in which no long passage is repeated."""
    entries, length = ["Summarise this report in one sentence.\n"], 0
    while length < tokens * CHARACTERS_A_TOKEN:
        n = len(entries)
        entries.append(
            f"{n}. On round {n * 7 % 90 + 10} the {_STATIONS[n % len(_STATIONS)]} station was "
            f"inspected at minute {n * 13 % 60}: {_FINDINGS[n * n % len(_FINDINGS)]}; "
            f"the reading was {n * 37 % 800 + 100}."
        )
        length += len(entries[-1]) + 1
    return "\n".join(entries)
