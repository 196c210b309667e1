"""Prompts of probes, the pieces in which a long one is sent, and the requests with them.

Five coding tasks take turns for decoding, and one long text is for prefill. Every prompt begins with a
salt that no other probe has, so that no prefix cache holds it. Texts never change: each has a baseline
of its own. A different wording gets a different name.

A real request must not wait long for a probe. llama.cpp evaluates a batch of up to 2048 prompt tokens
to its end, also when the connection has gone: 37 to 705 ms on a CPU. So a prompt is sent in growing
prefixes, each of which the engine evaluates from where the one before ended, and a probe gives way
between two of them. An engine whose timings do not say how much of a prompt was cached gets its prompt
in one request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Probing
from appliance.model.measurements import RawTimings
from appliance.model.profile import Applied, WarmUp, requested_name, text_request
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


MOST_PIECE_S: Final = 0.02
"""Time that an engine may take for a piece: a real request is to wait for less than 50 ms, in which the engine also has to
notice that the piece's connection has gone and to look at its queue."""
FEWEST_PIECE_TOKENS: Final = 2
"""Smaller pieces would be single tokens, of which every answer is made as well."""
_FIRST_TOKENS: Final = 16
MOST_STEP_S: Final = 0.05
"""Time from a request to its first token, or from one token to the next, for which a real request may have to wait."""
_CROWD_SHARE: Final = 0.1
_CROWD_CORES: Final = 0.5
"""CPU time of others beyond which they may be what makes a step long; the appliance's own processes use a fifth of a
core while a probe goes on."""
_ROOM: Final = 0.75
"""Share of the time beyond which a piece of twice the size is not tried."""
_LEAST_KEPT: Final = 0.5
"""Share of the prompt before that is used again: its last word may be cut into other tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceSize:
    """Search for the largest piece that takes no longer than `MOST_PIECE_S`."""

    tokens: int = _FIRST_TOKENS
    """Size of the next piece; when the search has ended, the result."""
    settled: bool = False

    def after(self, piece: RawTimings) -> "PieceSize":
        """Return the search after a piece of the size `tokens`."""
        if self.settled:
            return self
        prefill_s = piece.prefill_s or 0.0
        if prefill_s > MOST_PIECE_S:
            half = max(FEWEST_PIECE_TOKENS, self.tokens // 2)
            # A size above the first was reached by doubling one that was short enough.
            return PieceSize(
                tokens=half, settled=self.tokens > _FIRST_TOKENS or half == FEWEST_PIECE_TOKENS
            )
        no_more = self.tokens < _FIRST_TOKENS or self.tokens >= PREFILL_TOKENS
        if no_more or prefill_s > _ROOM * MOST_PIECE_S:
            return replace(self, settled=True)
        return PieceSize(tokens=2 * self.tokens)


def piece_end(prompt: str, start: int, tokens: int) -> int:
    """Return the index at which a piece of about so many tokens ends that begins at `start`.

    A piece ends at the end of a word, so that a tokenizer cuts it like the whole prompt; a word that is
    longer than the piece is divided.
    """
    end = start + tokens * CHARACTERS_A_TOKEN
    if end >= len(prompt):
        return len(prompt)
    word_end = max(prompt.rfind(" ", start + 1, end + 1), prompt.rfind("\n", start + 1, end + 1))
    return word_end if word_end > 0 else end


def prefixes(prompt: str, piece_tokens: int) -> Sequence[str]:
    """Return the growing prefixes that go before the request with the whole prompt."""
    found, end = [], 0
    while (end := piece_end(prompt, end, piece_tokens)) < len(prompt):
        found.append(prompt[:end])
    return found


def crowd_text(others_share: float | None, cpus: int) -> str:
    """Return what others use of the CPU, if they may make an engine's steps long; empty: they do not.

    llama.cpp's threads wait for one another hundreds of times in each step. Where one of them has to wait for
    the CPU the step takes many times as long, and hardly less for a smaller piece.

    Args:
        others_share: Share of the box's CPU time that others than the engine use; None: not known.
        cpus: Number of the box's CPUs.
    """
    if others_share is None or others_share < max(_CROWD_SHARE, _CROWD_CORES / cpus):
        return ""
    return f"other programs use {others_share:.0%} of the CPU"


def continues(before: RawTimings, after: RawTimings) -> bool:
    """Tell whether an engine evaluated a piece from where the one before ended.

    It begins anew where another request took the place of the prompt meanwhile, or where the
    model's state cannot be cut: that of a recurrent one.
    """
    return (after.cached_tokens or 0) >= _LEAST_KEPT * before.prompt_tokens


_FIXED: Final[Mapping[str, object]] = {
    "temperature": 0,
    "seed": 1,
    "stream": True,
    "stream_options": {"include_usage": True},
}


_COMPLETIONS: Final = "/v1/completions"


def probe_request(
    applied: Applied, prompt: str, *, output_tokens: int, salt: str, continues: bool = False
) -> tuple[str, Mapping[str, object]] | None:
    """Return path and body of a probe; None: the profile generates no text.

    An engine that takes pieces gets the text itself, others what a chat model's template makes of it.

    Args:
        applied: The profile.
        prompt: Text that begins with `salt`.
        output_tokens: Number of tokens that the engine must generate.
        salt: Letters and digits that no other probe has.
        continues: Whether the prompt goes on where that of the request before ended;
            the engine must take pieces.
    """
    request = text_request(applied, prompt)
    if request is None:
        return None
    path, body = request
    probing = probing_of(applied)
    chat = probing.chat_parameters if applied.warm_up is WarmUp.CHAT else {}
    if probing.piece_parameters is not None:
        # A chat template would write an end after each piece, which is evaluated for nothing.
        path, body, chat = _COMPLETIONS, {"model": requested_name(applied), "prompt": prompt}, {}
    parameters = dict(probing.parameters(output_tokens, salt))
    if continues:
        parameters |= probing.piece_parameters or {}
    return path, {**body, **_FIXED, **parameters, **chat}


def probing_of(applied: Applied) -> Probing:
    """Return the engine's part in probes of a profile; that of any engine for an unknown one."""
    engine = ENGINES.get(applied.engine)
    return Probing() if engine is None else engine.probing
