"""Proposal of a profile for a model on this box: the plan that fits, its keys, and the comments above them.

A plan says where a model's parts are, its context and its cache. Plans are searched from the largest context down,
and for each context from the fastest place:

=====================================  ===================================================================
context                                plans that are tried, in this order; the first that fits is proposed
=====================================  ===================================================================
asked for                              all of those below
all that the model was made for        the whole model on the fewest GPUs; a cache in f16, then in q8_0
below that, down to `USEFUL_TOKENS`    the same in f16; q8_0 only for exactly `USEFUL_TOKENS`
`USEFUL_TOKENS` and below              then the experts of the fewest layers in RAM
`LEAST_TOKENS`                         then the fewest layers in RAM; then the CPU alone
=====================================  ===================================================================

So more memory on the GPUs never makes a context smaller: what is slower buys a context that is useful, and no
more. A box without GPUs has at most `USEFUL_TOKENS`, unless more are asked for. Engines on PyTorch hold the
whole model on GPUs, and choose the type of the cache themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.model.amounts import size
from appliance.model.spec import Profile
from appliance.model.wording import joined
from appliance.profiles.foreign.profile_draft import DraftKey
from appliance.profiles.linting.common_traps import LARGE_SHARE
from appliance.profiles.proposing.engine_choice import (
    EMBEDDED,
    LLAMA_SERVER,
    SGLANG,
    VLLM,
    EngineChoice,
    ModelFacts,
    ModelTask,
)
from appliance.profiles.proposing.fit_judge import (
    FitJudge,
    Judged,
    ProposalRefusedError,
    place_lines,
    shortfall_text,
)

F16: Final = "f16"
_Q8: Final = "q8_0"
_SLOW_START: Final = "10m"
"""``no_progress`` of engines that compile for minutes at a first start without a sign of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlan:
    """Settings of one model."""

    gpus: tuple[int, ...]
    """Indexes of the GPUs; empty: the CPU alone."""
    tokens: int
    """Tokens of one request."""
    cache: str = F16
    parallel: int = 1
    layers_in_ram: int = 0
    """Number of first layers that stay in RAM."""
    experts_in_ram: tuple[int, ...] = ()
    """Layers whose experts stay in RAM."""
    checkpoints: int | None = None
    """Most checkpoints of one request; None: the engine's own number."""
    prompt_cache: str = ""
    """RAM of the prompt cache, as ``cache_ram`` has it; empty: the engine's own size."""
    locks_weights: bool = False
    """Whether the weights are locked in RAM."""
    share: float = 0.0
    """Share of each GPU that an engine on PyTorch takes."""
    claims_nothing: bool = False
    """Whether the profile is to run beside others."""

    @property
    def is_whole(self) -> bool:
        """Tell whether all layers are on GPUs, with their experts."""
        return bool(self.gpus) and not self.layers_in_ram and not self.experts_in_ram


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalSubject:
    """Profile that is proposed, apart from its plan."""

    name: str
    model: str
    """Model as the profile will name it."""
    title: str
    """Name of the model for people."""
    port: int
    choice: EngineChoice
    facts: ModelFacts
    asked_tokens: int | None = None
    """Context that a person asks for; None: none was."""
    comments: dict[str, str] = field(default_factory=dict)
    """Phrases after keys of the top, by key."""


def keys_of(subject: ProposalSubject, plan: ServingPlan) -> tuple[DraftKey, ...]:
    """Return the keys of the profile in the order of its file."""
    return (*_top(subject, plan), *_table(subject, plan))


def _top(subject: ProposalSubject, plan: ServingPlan) -> Iterator[DraftKey]:
    choice, facts = subject.choice, subject.facts
    values: dict[str, object] = {
        "description": f"{subject.title} on {_place_text(plan.gpus)}",
        "engine": choice.engine,
    }
    if choice.binary:
        values["binary"] = choice.binary
    values |= {"model": subject.model, "port": subject.port}
    if choice.engine != EMBEDDED:
        values["gpus"] = list(plan.gpus)
    if plan.claims_nothing:
        values["shared"] = True
    values |= {"ctx": plan.tokens, "parallel": plan.parallel}
    if choice.engine == LLAMA_SERVER and facts.task is ModelTask.GENERATE:
        values["kv"] = plan.cache
    comments = {**subject.comments, **_comments(subject, plan)}
    for key, value in values.items():
        yield DraftKey(table="", key=key, value=value, comment=comments.get(key, ""))


def _place_text(gpus: Sequence[int]) -> str:
    """Return where a model runs, for people: ``GPU 0``, ``GPUs 0 and 1``, ``the CPU``."""
    if not gpus:
        return "the CPU"
    return f"GPU{'s' if len(gpus) > 1 else ''} {joined([str(index) for index in gpus])}"


def _comments(subject: ProposalSubject, plan: ServingPlan) -> dict[str, str]:
    facts, trained = subject.facts, subject.facts.trained_tokens
    found = {"parallel": "requests at once, each with the whole context"}
    if plan.tokens == subject.asked_tokens:
        found["ctx"] = "as asked"
    elif plan.tokens == trained:
        found["ctx"] = "all that the model was made for"
    elif plan.is_whole:
        found["ctx"] = "the largest that fits with all of the model on the GPUs"
    elif plan.gpus:
        found["ctx"] = "room for an agent; a larger one moves more of the model into RAM"
    else:
        found["ctx"] = "a longer prompt takes minutes to read on a CPU"
    if plan.tokens > (trained or plan.tokens):
        found["ctx"] = f"as asked; the model was made for {trained:,}, which it may not exceed well"
    if plan.cache == _Q8:
        found["kv"] = "about half of f16, with which this context would not fit"
    if plan.claims_nothing:
        found["shared"] = "small: it claims no device, so a switch never stops it"
    if not facts.experts and plan.layers_in_ram:
        found["gpus"] = "a model without experts is slow with layers in RAM: prefer a smaller file"
    return found


def _table(subject: ProposalSubject, plan: ServingPlan) -> Iterator[DraftKey]:
    engine = subject.choice.engine
    if engine == LLAMA_SERVER:
        yield from _llama(subject, plan)
    elif engine != EMBEDDED:
        yield from _pytorch(engine, plan)


def _llama(subject: ProposalSubject, plan: ServingPlan) -> Iterator[DraftKey]:
    facts = subject.facts

    def key(name: str, value: object, comment: str = "") -> DraftKey:
        return DraftKey(table=LLAMA_SERVER, key=name, value=value, comment=comment)

    if facts.task is not ModelTask.GENERATE:
        yield key("embedding" if facts.task is ModelTask.EMBED else "rerank", value=True)
        yield key("batch", plan.tokens, "a text is read in one batch")
        yield key("ubatch", plan.tokens)
    if plan.gpus:
        yield _layers(facts, plan)
    if plan.experts_in_ram:
        yield _experts(facts, plan)
        yield key("load_mode", "none", "experts in RAM are slower out of a mapped file")
    if plan.locks_weights:
        yield key("mlock", value=True, comment="half of RAM or more: without it they go to swap")
    if plan.cache == _Q8:
        yield key("flash_attn", value=True, comment="a quantised cache needs it")
    if plan.checkpoints is not None:
        comment = "of one request; 32, the default, take more RAM than there is"
        yield key("ctx_checkpoints", plan.checkpoints, comment)
    if plan.prompt_cache:
        yield key("cache_ram", plan.prompt_cache, "of RAM, for earlier prompts; unset: 8 GiB")


def _layers(facts: ModelFacts, plan: ServingPlan) -> DraftKey:
    value: object = "all"
    comment = ""
    if plan.layers_in_ram:
        # The output counts as one more layer, the last.
        value = facts.blocks + 1 - plan.layers_in_ram
        comment = f"the most that fit: {plan.layers_in_ram} of {facts.blocks} layers stay in RAM"
    return DraftKey(table=LLAMA_SERVER, key="gpu_layers", value=value, comment=comment)


def _experts(facts: ModelFacts, plan: ServingPlan) -> DraftKey:
    """Return the key for experts in RAM: of the first layers, or over several GPUs of chosen ones."""
    comment = f"layers of {len(facts.experts)} whose experts stay in RAM, the fewest with which the rest fits"
    count = len(plan.experts_in_ram)
    if plan.experts_in_ram == facts.experts[:count]:
        value: object = plan.experts_in_ram[-1] + 1
        return DraftKey(table=LLAMA_SERVER, key="n_cpu_moe", value=value, comment=comment)
    return DraftKey(
        table=LLAMA_SERVER,
        key="cpu_experts",
        value=list(plan.experts_in_ram),
        comment=f"{count} {comment}, spread so that each GPU is relieved alike",
    )


def _pytorch(engine: str, plan: ServingPlan) -> Iterator[DraftKey]:
    share = "mem_fraction_static" if engine == SGLANG else "gpu_memory_utilization"
    if len(plan.gpus) > 1:
        yield DraftKey(table=engine, key="tensor_parallel", value=len(plan.gpus))
    comment = "of each GPU; the cache fills what the weights leave"
    yield DraftKey(table=engine, key=share, value=plan.share, comment=comment)
    comment = "a first start compiles for minutes"
    yield DraftKey(table="deadlines", key="no_progress", value=_SLOW_START, comment=comment)


USEFUL_TOKENS: Final = 32_768
"""Context with which a coding agent works: its instructions and tools alone take some 15,000 tokens."""
LEAST_TOKENS: Final = 8192
"""Smallest context that is proposed unless a smaller one is asked for."""
_EMBEDDED_TOKENS: Final = 8192
_FEWER_CHECKPOINTS: Final = (8, 2)
_MOST_SHARE: Final = {VLLM: 0.9, SGLANG: 0.88}
"""Most of each GPU that is proposed, by engine; SGLang's activations are outside its share."""
_SMALL_BYTES: Final = 2 << 30
"""Size of a model for embeddings or ranking up to which it runs beside others on the CPU."""
_PARALLEL: Final = {LLAMA_SERVER: (4, 2)}
_PYTORCH_PARALLEL: Final = (8, 4, 2)
_GIB: Final = 1 << 30
_DEFAULT_PROMPT_CACHE: Final = "8GiB"
_PROMPT_CACHES: Final = ((8 * _GIB, _DEFAULT_PROMPT_CACHE), (2 * _GIB, "2GiB"))
"""Sizes of llama-server's prompt cache, largest first, each as the profile has it."""

ReadKeys = Callable[[str, Sequence[DraftKey]], Profile]
"""Function that makes the profile of a name and its keys, by the rules of profiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Plan that fits."""

    subject: ProposalSubject
    plan: ServingPlan
    judged: Judged

    @property
    def keys(self) -> tuple[DraftKey, ...]:
        """Return the keys of the profile."""
        return keys_of(self.subject, self.plan)


def propose(subject: ProposalSubject, judge: FitJudge, read: ReadKeys) -> Proposal:
    """Return the profile that is proposed.

    Args:
        subject: Model and engine.
        judge: Judges what each plan needs.
        read: Makes profiles of keys.

    Raises:
        ProposalRefusedError: nothing fits, or there is no estimate.
    """
    return _Search(subject, judge, read).proposal()


class _Search:
    def __init__(self, subject: ProposalSubject, judge: FitJudge, read: ReadKeys) -> None:
        self._subject = subject
        self._judge = judge
        self._read = read
        self._facts = subject.facts
        self._engine = subject.choice.engine
        self._gpus = () if self._engine == EMBEDDED else judge.box.indexes

    def proposal(self) -> Proposal:
        asked = self._subject.asked_tokens
        found = self._best(asked)
        if found is None:
            raise ProposalRefusedError(self._refusal(asked))
        plan, judged = self._rounded_off(*found)
        return Proposal(subject=self._subject, plan=plan, judged=judged)

    def _best(self, asked: int | None) -> tuple[ServingPlan, Judged] | None:
        target = asked or self._target()
        for tokens in (target,) if asked else _contexts(target):
            for plan in self._plans(tokens, target, any_place=asked is not None):
                fitting = self._fitting(plan)
                if fitting is not None:
                    return fitting
        return None

    def _target(self) -> int:
        trained = self._facts.trained_tokens or USEFUL_TOKENS
        if self._facts.task is not ModelTask.GENERATE or self._engine == EMBEDDED:
            return min(trained, _EMBEDDED_TOKENS)
        return trained if self._gpus else min(trained, USEFUL_TOKENS)

    def _plans(self, tokens: int, target: int, *, any_place: bool) -> Iterator[ServingPlan]:
        """Yield the plans for a context, in the order of the table above."""
        if self._engine == EMBEDDED:
            yield ServingPlan(gpus=(), tokens=tokens)
            return
        if self._engine != LLAMA_SERVER:
            yield from self._sharded(tokens)
            return
        if self._runs_beside():
            yield ServingPlan(gpus=(), tokens=tokens, claims_nothing=True)
        useful, least = min(target, USEFUL_TOKENS), min(target, LEAST_TOKENS)
        caches = (F16, _Q8) if any_place or tokens == target or tokens <= useful else (F16,)
        if self._facts.task is not ModelTask.GENERATE:
            caches = (F16,)
        for cache in caches:
            for count in range(1, len(self._gpus) + 1):
                yield ServingPlan(gpus=self._first(count), tokens=tokens, cache=cache)
        if any_place or tokens <= useful:
            yield from self._with_experts_in_ram(tokens, caches)
        if any_place or tokens <= least or not self._gpus:
            yield from self._with_layers_in_ram(tokens, caches)
            for cache in caches:
                yield ServingPlan(gpus=(), tokens=tokens, cache=cache)

    def _first(self, count: int) -> tuple[int, ...]:
        return tuple(sorted(self._gpus[:count]))

    def _runs_beside(self) -> bool:
        if self._facts.task is ModelTask.GENERATE:
            return False
        plan = ServingPlan(gpus=(), tokens=min(self._target(), LEAST_TOKENS))
        return self._judged(plan).total_bytes <= _SMALL_BYTES

    def _with_experts_in_ram(self, tokens: int, caches: Sequence[str]) -> Iterator[ServingPlan]:
        experts = self._facts.experts
        for count in range(len(self._gpus), 0, -1) if experts else ():
            gpus = self._first(count)
            for cache in caches:
                base = ServingPlan(gpus=gpus, tokens=tokens, cache=cache)

                def moved(number: int, base: ServingPlan = base) -> ServingPlan:
                    return replace(base, experts_in_ram=_relieving(experts, number, base.gpus))

                yield from self._fewest(len(experts), moved)

    def _with_layers_in_ram(self, tokens: int, caches: Sequence[str]) -> Iterator[ServingPlan]:
        for count in range(len(self._gpus), 0, -1):
            for cache in caches:
                base = ServingPlan(gpus=self._first(count), tokens=tokens, cache=cache)

                def moved(number: int, base: ServingPlan = base) -> ServingPlan:
                    return replace(base, layers_in_ram=number)

                yield from self._fewest(self._facts.blocks - 1, moved)

    def _fewest(self, most: int, moved: Callable[[int], ServingPlan]) -> Iterator[ServingPlan]:
        """Yield the plan that moves the fewest parts, up to `most`, with which the GPUs hold the rest."""

        def enough(number: int) -> bool:
            judged = self._judged(moved(number))
            return not judged.lacking or judged.lacks_only_ram

        if most < 1 or not enough(most):
            return
        low, high = 1, most
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle + 1, high)
        yield moved(low)

    def _sharded(self, tokens: int) -> Iterator[ServingPlan]:
        """Yield plans over one GPU, and over each further number that divides the attention heads."""
        for count in range(1, len(self._gpus) + 1):
            if self._facts.heads % count:
                continue
            devices = self._judge.box.devices[:count]
            free = min(device.free_bytes / max(1, device.total_bytes) for device in devices)
            share = min(_MOST_SHARE[self._engine], int(free * 100) / 100)
            if share > 0:
                yield ServingPlan(gpus=self._first(count), tokens=tokens, share=share)

    def _judged(self, plan: ServingPlan) -> Judged:
        profile = self._read(self._subject.name, keys_of(self._subject, plan))
        judged = self._judge.judged(profile)
        if judged.row is None:
            problem = judged.applied.estimate_problem
            raise ProposalRefusedError(f"its memory cannot be estimated: {problem}")
        return judged

    def _fitting(self, plan: ServingPlan) -> tuple[ServingPlan, Judged] | None:
        """Return a plan that fits, with fewer checkpoints where RAM alone is missing; None: it does not."""
        judged = self._judged(plan)
        for count in _FEWER_CHECKPOINTS:
            estimate = judged.applied.estimate
            if not judged.lacks_only_ram or estimate is None or not estimate.ram.checkpoints_bytes:
                break
            if self._engine != LLAMA_SERVER:
                break
            plan = replace(plan, checkpoints=count)
            judged = self._judged(plan)
        return (plan, judged) if judged.fits else None

    def _rounded_off(self, plan: ServingPlan, judged: Judged) -> tuple[ServingPlan, Judged]:
        """Return a plan with what else there is room for: requests at once, and the prompt cache."""
        if plan.is_whole and self._facts.task is ModelTask.GENERATE:
            for count in _PARALLEL.get(self._engine, _PYTORCH_PARALLEL):
                more = replace(plan, parallel=count)
                better = self._judged(more)
                if better.fits:
                    plan, judged = more, better
                    break
        if self._engine == LLAMA_SERVER:
            plan = replace(
                plan,
                prompt_cache=self._prompt_cache(plan, judged),
                locks_weights=self._locks_weights(plan, judged),
            )
        return plan, self._judged(plan)

    def _locks_weights(self, plan: ServingPlan, judged: Judged) -> bool:
        """Tell whether the weights are so large a part of RAM that they would be swapped, as lint has it."""
        estimate = judged.applied.estimate
        if plan.gpus or estimate is None:
            return False
        return estimate.ram.weights_bytes >= LARGE_SHARE * self._judge.box.host.total_bytes

    def _prompt_cache(self, plan: ServingPlan, judged: Judged) -> str:
        estimate = judged.applied.estimate
        if self._facts.task is not ModelTask.GENERATE or estimate is None:
            return "0"
        left = self._judge.box.host.available_bytes - estimate.ram_bytes
        found = next((text for count, text in _PROMPT_CACHES if left >= 2 * count), "0")
        # A cache that competes with weights in RAM stands in the profile, also where its size is the default.
        return "" if plan.is_whole and found == _DEFAULT_PROMPT_CACHE else found

    def _refusal(self, asked: int | None) -> str:
        """Return why nothing fits, with figures."""
        target = asked or self._target()
        tokens = asked or min(target, LEAST_TOKENS)
        title = self._subject.title
        room = self._room()
        if self._engine == LLAMA_SERVER:
            smallest = ServingPlan(gpus=(), tokens=tokens, cache=_Q8, checkpoints=0)
        elif self._engine == EMBEDDED:
            smallest = ServingPlan(gpus=(), tokens=tokens)
        else:
            plans = list(self._sharded(tokens))
            if not plans:
                return (
                    f"{title} is in safetensors files, which {self._engine} serves on GPUs, and the box has"
                    " none that can be used: use a GGUF file"
                )
            smallest = plans[-1]
        judged = self._judged(smallest)
        text = (
            f"{title} with a context of {tokens:,} tokens needs ≥ {size(judged.total_bytes)}, and this"
            f" box has {room}"
        )
        other = self._best(None) if asked is not None else None
        if other is not None and other[0].tokens < tokens:
            return f"{text}: --ctx {other[0].tokens} fits"
        return f"{text}: choose a smaller quantisation"

    def _room(self) -> str:
        box = self._judge.box
        ram = f"{size(box.host.available_bytes)} of RAM"
        if not box.devices:
            return ram
        return f"{size(sum(d.free_bytes for d in box.devices))} on GPUs and {ram}"


def _contexts(target: int) -> Sequence[int]:
    """Return contexts from `target` down, about a third less each time."""
    least = min(target, LEAST_TOKENS)
    rungs = {target, least}
    rung = LEAST_TOKENS
    while rung < target:
        rungs |= {rung, min(target, rung * 3 // 2)}
        rung *= 2
    return sorted(rungs, reverse=True)


def _relieving(experts: Sequence[int], count: int, gpus: Sequence[int]) -> tuple[int, ...]:
    """Return layers whose experts leave the GPUs: the first; on several GPUs spread over all layers.

    llama.cpp gives each GPU a run of layers: the first ones would relieve the first GPU alone.
    """
    if len(gpus) == 1:
        return tuple(experts[:count])
    return tuple(experts[place * len(experts) // count] for place in range(count))


_INDENT = "  "


def fit_lines(judged: Judged, judge: FitJudge) -> Iterator[str]:
    """Yield what a profile needs in each place, and whether that fits the box."""
    if judged.row is None:
        yield f"Its memory is not known: {judged.applied.estimate_problem}"
        return
    yield (
        "It fits this box:"
        if judged.fits
        else f"It does not fit this box: {shortfall_text(judged)}:"
    )
    for line in place_lines(judged, judge.box):
        yield f"{_INDENT}{line}"


def proposal_lines(proposal: Proposal, judged: Judged, judge: FitJudge) -> Iterator[str]:
    """Yield the comments above a proposed profile.

    Args:
        proposal: The proposal.
        judged: The profile as it is written, which may have further settings of a person.
        judge: Judges the next larger context.
    """
    choice, facts = proposal.subject.choice, proposal.subject.facts
    yield f"Proposed by appliance profile new: {choice.engine}, since the model is {choice.why}."
    yield f"The model: {_described(facts)}."
    yield from fit_lines(judged, judge)
    yield from _larger_lines(judged, judge, facts.trained_tokens)
    yield from judge.box.notes
    if judged.applied.estimate is not None:
        yield f"Estimated from the model's header: {'; '.join(judged.applied.estimate.notes)}."
    if facts.drafts and judged.profile.speculative is None:
        yield (
            'Its file has layers that draft: speculative = { method = "mtp", tokens = 3 } may make it faster.'
        )


def _described(facts: ModelFacts) -> str:
    words = [
        f"architecture {facts.architecture}" if facts.architecture else "no architecture named"
    ]
    words.append(f"{facts.blocks} layers")
    if facts.experts:
        words.append(f"experts in {len(facts.experts)}")
    if facts.trained_tokens:
        words.append(f"made for {facts.trained_tokens:,} tokens")
    if facts.task is not ModelTask.GENERATE:
        words.append("for embeddings" if facts.task is ModelTask.EMBED else "for ranking")
    return ", ".join(words)


def _larger_lines(judged: Judged, judge: FitJudge, trained: int | None) -> Iterator[str]:
    """Yield what the next larger context would need; nothing: there is none."""
    tokens = judged.profile.ctx
    if tokens is None or trained is None or tokens >= trained:
        return
    larger = min(trained, 2 * tokens)
    other = judge.judged(replace(judged.profile, ctx=larger))
    if other.row is None:
        return
    verdict = "would fit" if other.fits else "would not fit as it is"
    yield f"With ctx = {larger} it {verdict}:"
    for line in place_lines(other, judge.box):
        yield f"{_INDENT}{line}"


def settings_text(proposal: Proposal) -> str:
    """Return what distinguishes a plan, as a profile has it: ``gpus = [0], ctx = 32768, kv = "f16"``."""
    found = []
    for key in proposal.keys:
        if key.key in _DISTINGUISHING:
            value = f'"{key.value}"' if isinstance(key.value, str) else key.value
            found.append(f"{key.key} = {value}")
    return ", ".join(found)


_DISTINGUISHING: Final = frozenset(
    {"gpus", "ctx", "parallel", "kv", "gpu_layers", "n_cpu_moe", "cpu_experts", "tensor_parallel"}
)
"""Keys in which the plans of one model differ."""
