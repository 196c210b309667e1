"""Facts that vLLM and SGLang report in the same words, and the page that both have."""

from collections.abc import Iterable, Iterator
from typing import Final

from appliance.engines.shared.declared_facts import (
    draft_facts,
    exactly,
    model_fact,
    stated,
    thinking_facts,
)
from appliance.engines.shared.rendering import HF_SCHEME, model_named
from appliance.engines.shared.self_report import PageReader, Reading, ReportPage, spoken
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import Profile

_SIXTEEN_BITS: Final = ("auto", "bf16", "bfloat16", "float16", "half")
_EIGHT_BITS: Final = ("fp8", "fp8_e4m3")
_CACHE_WORDS: Final = {
    "bf16": _SIXTEEN_BITS,
    "f16": _SIXTEEN_BITS,
    "fp8": _EIGHT_BITS,
    "fp8_e4m3": _EIGHT_BITS,
}
"""Words of both engines for a type of the cache; another type has one word."""


def common_facts(
    profile: Profile, *, quantization: str | None, chat_template: str | None
) -> Iterator[DeclaredFact]:
    """Yield what a profile declares of the facts that both engines report.

    Args:
        profile: The profile.
        quantization: Method that its table names; None: as the model says.
        chat_template: Template that its table names; None: the model's.
    """
    if profile.ctx is not None:
        yield exactly(Topic.CONTEXT, "ctx", profile.ctx)
    if profile.parallel is not None:
        yield exactly(Topic.SLOTS, "parallel", profile.parallel)
    if profile.kv is not None and profile.kv.k != "auto":
        kind = profile.kv.k
        yield stated(Topic.KV, "kv", kind, *_CACHE_WORDS.get(kind, (kind,)))
    yield stated(Topic.GPU_LAYERS, "gpus", "none" if profile.gpus == () else "all")
    yield from draft_facts(profile)
    yield from thinking_facts(profile)
    yield model_fact(profile)
    if quantization is not None:
        # An engine picks kernels for a method: another name is not another method.
        yield stated(Topic.QUANTIZATION, "quantization", quantization, fails=False)
    if chat_template is not None:
        yield stated(Topic.CHAT_TEMPLATE, "chat_template", chat_template)
    if profile.adapters:
        yield stated(Topic.ADAPTERS, "adapters", _names(a.name for a in profile.adapters))


def _model_list(page: str) -> Iterator[Reading]:
    reader = PageReader("/v1/models", page)
    listed = (reader.mapping() or {}).get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(first, dict):
        yield reader.nonsense("list of models")
        return
    yield from reader.number(Topic.CONTEXT, first, "max_model_len")
    yield from reader.word(Topic.MODEL, first, "root", words=model_words)
    rows = listed if isinstance(listed, list) else []
    yield spoken(Topic.ADAPTERS, "/v1/models", _names(filter(None, map(_adapter, rows))))


def _adapter(row: object) -> str | None:
    """Return the name of the adapter that an entry is; None: a model, which belongs to no other."""
    members = row if isinstance(row, dict) else {}
    name = members.get("id")
    return name if isinstance(name, str) and isinstance(members.get("parent"), str) else None


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


MODEL_LIST: Final = ReportPage(path="/v1/models", read=_model_list)
"""Page with context, model and adapters."""


def model_words(text: str) -> tuple[str, ...]:
    """Return a model as profiles name it: ``owner/name`` is a repository."""
    named = model_named(text)
    is_path = named.startswith(("/", HF_SCHEME)) or "/" not in named
    return (named if is_path else f"{HF_SCHEME}{named}",)


def place_words(device: str) -> tuple[str, ...]:
    """Return where a model's layers are, by the kind of the device that an engine names."""
    return ("none" if device == "cpu" else "all",)


def method_words(method: str) -> tuple[str, ...]:
    """Return the methods of quantisation that a name may stand for: ``awq`` of ``awq_marlin``, too."""
    return method, method.partition("_")[0]
