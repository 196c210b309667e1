"""Plan of a bench: stages of requests that are sent with one concurrency, and the time they take.

Requests of one stage follow one another without a pause, so many at a time. A level of a swarm has
full waves of requests, two at least, so that the concurrency that it is named for can be reached.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import pow as power
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Probing
from appliance.model.errors import BackendError
from appliance.model.profile import Applied, WarmUp, text_request
from appliance.model.words import Series
from appliance.speed.bench_rows import Part
from appliance.speed.probe_prompts import CODING_TASKS, prefill_name, prompt_text, series_of

SINGLE_TOKENS: Final = 4096
"""Limit of an answer in the published method; the model ends most of them before it."""
SWARM_TOKENS: Final = 8192
DEPTH_TOKENS: Final = 128
"""As llama-bench generates by default."""
FEWEST_DEPTH_TOKENS: Final = 8
"""Length of the answer to the prompt that only shows how many tokens its text has."""
ANSWER_TOKENS: Final = 256
FEWEST_TOKENS: Final = 128
"""An engine that refuses an answer of so many tokens gets no request for less."""
_TEMPERATURE: Final = 0.7
_FEWEST_SWARM_REQUESTS: Final = 4
_WARM_UP_CONCURRENCY: Final = 4
_GAIN: Final = 0.6
"""Exponent of the effective rate over the concurrency, roughly; only for the time that is left."""
_DEPTH_OF_A_REQUEST: Final = 4000
"""Prompt tokens that take about as long as one answer; also only for the time that is left."""
_CALIBRATING_DEPTH: Final = 512
_SHORT_ANSWER: Final = 0.3
_LANGUAGES: Final = ("Go", "Rust", "TypeScript", "Java", "Kotlin", "C++", "C#", "Swift")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Work that each profile gets."""

    runs: int = 1
    levels: tuple[int, ...] = ()
    """Concurrencies of the swarm, with 1 first; empty: no swarm."""
    depths: tuple[int, ...] = ()
    """Lengths of prompts after which decoding is measured."""
    tokens: int | None = None
    """Exact length of each answer; None: up to the limits of the published method."""
    answers: bool = False
    """Whether greedy answers are wanted, to compare them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Requests that are sent with one concurrency."""

    part: Part
    run: int
    """Number of the run, from 1; 0: warm-up."""
    concurrency: int = 1
    prompts: tuple[str, ...]
    """Name of the prompt of each request."""
    depth: int = 0
    tokens: int
    """Limit of an answer, or its length."""
    exact: bool = False
    """Whether an answer must have so many tokens."""

    @property
    def weight(self) -> float:
        """Return how long the stage takes, relative to one request alone."""
        answer = _SHORT_ANSWER if self.tokens <= ANSWER_TOKENS else 1.0
        each = self.depth / _DEPTH_OF_A_REQUEST + answer
        return each * len(self.prompts) / power(self.concurrency, _GAIN)


def swarm_levels(lowest: int, highest: int) -> tuple[int, ...]:
    """Return the concurrencies of a swarm; 1 is always among them, to compare the others with."""
    return tuple(sorted({1, *range(lowest, highest + 1)}))


def stages(workload: Workload, first_run: int = 1) -> Sequence[Stage]:
    """Return the stages of one block, in their order; each part begins with a warm-up.

    Args:
        workload: Work of the block.
        first_run: Number of its first run: no two blocks of a profile have the same.
    """
    exact = workload.tokens is not None
    single, swarm = workload.tokens or SINGLE_TOKENS, workload.tokens or SWARM_TOKENS
    tasks = tuple(CODING_TASKS)
    runs = range(first_run, first_run + workload.runs)
    found = [
        Stage(part=Part.SINGLE, run=run, prompts=tasks, tokens=single, exact=exact)
        for run in (0, *runs)
    ]
    if workload.levels:
        warm_up = min(_WARM_UP_CONCURRENCY, workload.levels[-1])
        found.append(_swarm(warm_up, 0, swarm, exact=exact))
        found += [_swarm(c, run, swarm, exact=exact) for run in runs for c in workload.levels]
    if workload.depths:
        found.append(_depth(_CALIBRATING_DEPTH, 0))
    for depth in workload.depths:
        found += [_depth(depth, run) for run in runs]
    if workload.answers:
        found.append(Stage(part=Part.ANSWERS, run=first_run, prompts=tasks, tokens=ANSWER_TOKENS))
    return found


def _swarm(concurrency: int, run: int, tokens: int, *, exact: bool) -> Stage:
    waves = max(2, -(-_FEWEST_SWARM_REQUESTS // concurrency))
    tasks = tuple(CODING_TASKS)
    count = concurrency * waves
    prompts = tuple(tasks[(concurrency + number) % len(tasks)] for number in range(count))
    return Stage(
        part=Part.SWARM,
        run=run,
        concurrency=concurrency,
        prompts=prompts,
        tokens=tokens,
        exact=exact,
    )


def _depth(depth: int, run: int) -> Stage:
    return Stage(
        part=Part.DEPTH,
        run=run,
        prompts=(prefill_name(depth),),
        depth=depth,
        tokens=DEPTH_TOKENS if run else FEWEST_DEPTH_TOKENS,
        exact=True,
    )


def stage_prompt(stage: Stage, number: int, salt: str, *, tokens_scale: float = 1.0) -> str:
    """Return the text of one request, which no other level has, after its salt.

    Args:
        stage: Stage of the request.
        number: Number of the request in it, from 0.
        salt: Letters and digits that no other request has; for comparable answers always the same.
        tokens_scale: Factor by which long prompts must be longer to have as many tokens as wanted.
    """
    name = stage.prompts[number]
    if series_of(name) is Series.PREFILL:
        # The answer is decoded within the depth, which may be the whole context.
        tokens = max(1, round((stage.depth - stage.tokens) * tokens_scale))
        return prompt_text(prefill_name(tokens), salt)
    text = prompt_text(name, salt)
    if stage.part is not Part.SWARM:
        return text
    language = _LANGUAGES[stage.concurrency % len(_LANGUAGES)]
    variant = number // len(CODING_TASKS) + stage.concurrency // len(_LANGUAGES) * stage.concurrency
    return f"{text}\n\nWhere the task says Python, use {language}. This is variant {variant + 1}."


def stage_request(
    applied: Applied, stage: Stage, prompt: str, salt: str, *, tokens: int
) -> tuple[str, Mapping[str, object]]:
    """Return path and body of a request.

    Args:
        applied: The profile.
        stage: Stage of the request.
        prompt: Its text.
        salt: The text's salt.
        tokens: Limit of the answer: the stage's, or less where the engine takes no more.

    Raises:
        BackendError: the profile generates no text.
    """
    request = text_request(applied, prompt)
    if request is None:
        raise BackendError(f"{applied.name} generates no text: bench measures models that do")
    path, body = request
    engine = ENGINES.get(applied.engine)
    probing = Probing() if engine is None else engine.probing
    greedy: Mapping[str, object] = {"temperature": 0, "seed": 1}
    return path, {
        **body,
        **(greedy if stage.part is Part.ANSWERS else {"temperature": _TEMPERATURE}),
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **(probing.parameters(tokens, salt) if stage.exact else {}),
        **(probing.chat_parameters if applied.warm_up is WarmUp.CHAT else {}),
    }


def time_left_s(
    finished: Iterable[Stage], current: Stage, done: int, rest: Iterable[Stage], spent_s: float
) -> float | None:
    """Return the time that a bench still takes, judged by what it took; None: too early to say.

    Args:
        finished: Stages that are over.
        current: The running stage.
        done: Requests of it that have ended.
        rest: Stages that come after it.
        spent_s: Time since the bench began.
    """
    share = done / len(current.prompts)
    finished_weight = sum(stage.weight for stage in finished) + share * current.weight
    if finished_weight <= 0:
        return None
    left = (1 - share) * current.weight + sum(stage.weight for stage in rest)
    return spent_s * left / finished_weight
