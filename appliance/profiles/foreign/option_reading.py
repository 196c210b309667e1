"""Options of an engine's command line: where each begins, its values and other names, and the words of values."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines.shared.refused_arguments import canonical_option
from appliance.model.json_reader import decode_json
from appliance.profiles.foreign.server_command import Argument

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOption:
    """Option with its values, as a command line has it."""

    name: str
    """Name with dashes only, without a value."""
    values: tuple[Argument, ...] = ()
    words: tuple[Argument, ...]
    """The option as it was written."""
    source: str = ""
    """Variable that set it; empty: the command line."""
    is_default: bool = False
    """Whether it only says what holds without it."""

    @property
    def text(self) -> str:
        """Return the option on one line."""
        return " ".join(word.text for word in self.words)

    @property
    def word(self) -> Argument:
        """Return its first value; empty where it has none."""
        return self.values[0] if self.values else Argument(text="")

    @property
    def value(self) -> str:
        """Return the text of its first value; empty where it has none."""
        return self.word.text

    @property
    def json_path(self) -> tuple[str, ...]:
        """Return the names after the dots of ``--option.name value``."""
        return tuple(self.words[0].text.partition("=")[0].split(".")[1:])

    @property
    def unknown(self) -> str:
        """Return why its value is not known; empty: it is."""
        return "; ".join(word.note for word in self.words if not word.is_known)

    @property
    def note(self) -> str:
        """Return what was assumed about its value; empty: nothing."""
        notes = dict.fromkeys(word.note for word in self.words if word.is_known and word.note)
        return "; ".join(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLineStyle:
    """Form in which an engine reads its command line."""

    switches: frozenset[str] = frozenset()
    """Options that take no value, by canonical name."""
    several: frozenset[str] = frozenset()
    """Options that take any number of values."""
    joins_values: bool = False
    """Whether ``--a=b`` is ``--a b``."""


_SWITCH_WORDS: Final = """
    --agent --backend-sampling --cache-idle-slots --cache-prompt --check-tensors --cont-batching
    --context-shift --cors-credentials --cpu-moe --cpu-moe-draft --direct-io --embedding
    --embeddings --escape --ignore-eos --jinja --kv-offload --kv-unified --log-disable --log-jsonl
    --log-prefix --log-timestamps --lora-init-without-apply --metrics --mlock --mmap --mmproj-auto
    --mmproj-offload --models-autoload --no-host --no-mmproj --offline --op-offload --perf
    --prefill-assistant --props --reasoning-preserve --repack --rerank --reranking --reuse-port
    --skip-chat-parsing --slots --spec-default --spec-draft-backend-sampling --spec-draft-cpu-moe
    --special --spm-infill --swa-full --ui --ui-mcp-proxy --verbose --verbose-prompt --log-verbose
    --warmup --webui --webui-mcp-proxy -bs -cb -cmoe -cmoed -dio -e -kvo -kvu -nkvo -no-kvu -nocb
    -nr -ndio -sp -v -ag -no-ag --vision-gemma-4b-default --gpt-oss-20b-default
    --gpt-oss-120b-default
"""
LLAMA_SWITCHES: Final = frozenset(_SWITCH_WORDS.split())
"""llama-server's options without a value: build b11549 (common/arg.cpp), and those that it replaced."""
_ONE_WAY_WORDS: Final = """
    --backend-sampling --check-tensors --cpu-moe --cpu-moe-draft --embedding --embeddings
    --ignore-eos --log-disable --lora-init-without-apply --metrics --mlock --offline --props
    --rerank --reranking --reuse-port --spec-default --spec-draft-cpu-moe --special --spm-infill
    --swa-full --verbose --verbose-prompt --log-verbose -bs -cmoe -cmoed -sp -v
"""
_ONE_WAY: Final = frozenset(_ONE_WAY_WORDS.split())
"""Switches that can only be turned on, and are off without it."""
LLAMA_VARIABLE: Final = "LLAMA_ARG_"
"""Beginning of the names of variables that are options."""
_LLAMA_VARIABLES: Final[Mapping[str, str]] = {
    "BATCH": "batch-size",
    "CHECKPOINT_MIN_SPACING_NT": "checkpoint-min-step",
    "DEFRAG_THOLD": "defrag-thold",
    "DRAFT_MAX": "draft-max",
    "DRAFT_MIN": "draft-min",
    "ENDPOINT_METRICS": "metrics",
    "ENDPOINT_PROPS": "props",
    "ENDPOINT_SLOTS": "slots",
    "N_PARALLEL": "parallel",
    "ROPE_SCALING_TYPE": "rope-scaling",
    "SPEC_DRAFT_CACHE_TYPE_K": "spec-draft-type-k",
    "SPEC_DRAFT_CACHE_TYPE_V": "spec-draft-type-v",
    "SPEC_DRAFT_HF_REPO": "spec-draft-hf",
    "STATIC_PATH": "path",
    "THINK": "reasoning-format",
    "THINK_BUDGET": "reasoning-budget",
    "THINK_BUDGET_MESSAGE": "reasoning-budget-message",
    "UBATCH": "ubatch-size",
}
"""Names of variables that are not those of their options (common/arg.cpp, set_env)."""


def is_option(word: str) -> bool:
    """Tell whether a word is an option, not a value such as ``-1``."""
    return len(word) > 1 and word[0] == "-" and not word[1:2].isdigit() and word[1] != "."


def read_options(
    arguments: Iterable[Argument], style: CommandLineStyle
) -> tuple[tuple[Argument, ...], tuple[EngineOption, ...]]:
    """Return the words that belong to no option, and the options, in their order."""
    alone: list[Argument] = []
    found: list[tuple[EngineOption, list[Argument]]] = []
    for word in arguments:
        if is_option(word.text):
            found.append((_begun(word, style), []))
        elif found and _takes(*found[-1], word, style):
            found[-1][1].append(word)
        else:
            alone.append(word)
    return tuple(alone), tuple(_with_values(option, values) for option, values in found)


def _with_values(option: EngineOption, values: Sequence[Argument]) -> EngineOption:
    if not values:
        return option
    return replace(option, values=(*option.values, *values), words=(*option.words, *values))


def _begun(word: Argument, style: CommandLineStyle) -> EngineOption:
    name, equals, value = word.text.partition("=")
    if equals and style.joins_values and word.text.startswith("--"):
        given = replace(word, text=value)
        return EngineOption(name=canonical_option(name), values=(given,), words=(word,))
    return EngineOption(name=canonical_option(word.text), words=(word,))


def _takes(
    option: EngineOption, values: Sequence[Argument], word: Argument, style: CommandLineStyle
) -> bool:
    if option.name in style.switches or option.name.replace("--no-", "--", 1) in style.switches:
        return False
    if option.name in style.several:
        return word.is_known
    return not option.values and not values and "=" not in option.words[0].text


def preset_option(word: Argument) -> Iterator[EngineOption]:
    """Yield the option of llama-server that ``--name=value`` of its presets is; a switch may be off."""
    name, _, value = word.text.partition("=")
    if name.startswith(LLAMA_VARIABLE):
        yield from variable_option(name, replace(word, text=value))
    else:
        # A short name has one dash in a command line, and none in a preset.
        short = f"-{name.lstrip('-')}"
        known_name = short if len(short) <= len("-ctkd") and short in _SHORT else name
        yield from _set(known_name, replace(word, text=value), "")


def variable_option(name: str, value: Argument) -> Iterator[EngineOption]:
    """Yield the option that a variable ``LLAMA_ARG_…`` sets; none for another variable."""
    if not name.startswith(LLAMA_VARIABLE):
        return
    stem = name.removeprefix(LLAMA_VARIABLE)
    option = _LLAMA_VARIABLES.get(stem, stem.lower().replace("_", "-"))
    yield from _set(f"--{option}", value, name)


def _set(name: str, value: Argument, source: str) -> Iterator[EngineOption]:
    positive = name.replace("--no-", "--", 1)
    if name not in LLAMA_SWITCHES and positive not in LLAMA_SWITCHES:
        words = (Argument(text=name), value)
        yield EngineOption(name=name, values=(value,), words=words, source=source)
        return
    truth = truth_of(value.text)
    if truth is None or not value.is_known:
        words = (Argument(text=name), value)
        yield EngineOption(name=name, values=(value,), words=words, source=source)
        return
    is_default = not truth and name in _ONE_WAY
    if not truth and not is_default:
        name = f"--no-{name.removeprefix('--')}" if name == positive else positive
    word = replace(value, text=name)
    yield EngineOption(name=name, words=(word,), source=source, is_default=is_default)


_SHORT_WORDS: Final = """
    -a -b -c -cb -cmoe -cms -cram -ctk -ctkd -ctv -ctvd -ctxcp -dev -devd -fa -fit -hf -hff -hfr
    -kvo -kvu -lm -m -md -mg -mm -n -ncmoe -ncffn -ngl -ngld -np -ot -rea -s -sm -t -tb -ts -ub -C
    -Cr -hfd -otd -sps
"""
_SHORT: Final = frozenset(_SHORT_WORDS.split())
"""Short names of llama-server's options that presets use."""
