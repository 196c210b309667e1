"""Plan of a proposal: where a model's parts are, its context and its cache, and the keys that say so."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance.model.wording import joined
from appliance.profiles.foreign.profile_draft import DraftKey
from appliance.profiles.proposing.engine_choice import EMBEDDED, LLAMA_SERVER, SGLANG, EngineChoice
from appliance.profiles.proposing.model_facts import ModelFacts, ModelTask

F16: Final = "f16"
Q8: Final = "q8_0"
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
        "description": f"{subject.title} on {place_text(plan.gpus)}",
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


def place_text(gpus: Sequence[int]) -> str:
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
    if plan.cache == Q8:
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
    if plan.cache == Q8:
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
