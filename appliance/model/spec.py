"""Profile as its owner writes it: keys that all engines have, the table of one engine, and problems.

Each key of the file is a field with a `Doc`, declared here and nowhere else (those of an engine's
table in its module); `appliance.system.profile_files.loading` makes the schema of a file from them.
Values are already checked. What the daemon acts on is the compiled form,
`appliance.model.profile.Applied`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from appliance.model.profile import Deadlines, Endpoint, WarmUp, plain_names
from appliance.model.profile_values import (
    AdapterPath,
    DraftModel,
    GpuChoice,
    Kv,
    Layers,
    ParameterNames,
    ParameterValues,
    ThinkingChoice,
    UnitOverrides,
    WordOrWords,
)
from appliance.model.running_facts import Topic
from appliance.model.trap_names import TrapName
from appliance.model.value_types import (
    AbsolutePath,
    Command,
    Doc,
    DraftLength,
    FullText,
    Length,
    Line,
    ModelName,
    Paths,
    Port,
    Range,
    Served,
    Shards,
    Size,
    SocketPath,
    Text,
    Tokens,
    User,
    VariableName,
    Word,
    Words,
)
from appliance.model.words import Mark

_SEE_BELOW = Doc("see below")
Where = tuple[str | int, ...]
"""Place in a document: keys from its top down; an integer is the position in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of one engine: the table of a profile that has the engine's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramTable:
    """``speculative = { ngram = { … } }``: drafts taken from the text that is there already."""

    tokens: Annotated[
        DraftLength | None, Doc("tokens drafted in each step; unset: `tokens` of the table above")
    ] = None
    min_tokens: Annotated[
        DraftLength | None, Doc("tokens of the shortest draft that is worth verifying")
    ] = None
    match: Annotated[
        DraftLength | None, Doc("tokens that must occur earlier in the text for a draft")
    ] = None
    min_match: Annotated[
        DraftLength | None,
        Doc("tokens of the shortest such occurrence, where `match` is the longest"),
    ] = None
    hits: Annotated[DraftLength | None, Doc("times that it must have occurred")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """``speculative = { … }``: speculative decoding."""

    methods: Annotated[
        WordOrWords,
        Doc(
            "`mtp`, `eagle3`, `draft`, `ngram` …; a list where the engine takes several",
            key="method",
        ),
    ]
    tokens: Annotated[
        DraftLength | None,
        Doc("tokens drafted in each step; may be unset where n-grams alone draft"),
    ] = None
    min_tokens: Annotated[
        DraftLength | None, Doc("tokens of the shortest draft that is verified")
    ] = None
    min_probability: Annotated[
        Annotated[float, Range(least=0, most=1)] | None,
        Doc("probability below which a draft ends"),
    ] = None
    model: Annotated[DraftModel | None, Doc("the draft model; `mtp` and n-grams need none")] = None
    gpu_layers: Annotated[
        Layers | None, Doc("layers of the draft model on the GPUs; unset: all with GPUs")
    ] = None
    device: Annotated[
        WordOrWords, Doc("devices of the draft model as the engine calls them, such as `CUDA1`")
    ] = ()
    tensor_parallel: Annotated[
        Shards | None, Doc("GPUs over which the draft model is split; unset: as the model is")
    ] = None
    kv: Annotated[Kv | None, Doc("type of the draft model's key and value cache")] = None
    ngram: Annotated[NgramTable, Doc("sizes where n-grams draft")] = field(
        default_factory=NgramTable
    )
    require: Annotated[
        bool,
        Doc("whether the profile must not run without it: probes that draft nothing are reported"),
    ] = False


_Penalty = Annotated[float, Range(least=-2, most=2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingTable:
    """``sampling = { … }``: sampling parameters of a request that has none of its own."""

    temperature: Annotated[
        Annotated[float, Range(least=0, most=5)] | None, Doc("`0`: the likeliest token, always")
    ] = None
    top_p: Annotated[
        Annotated[float, Range(above=0, most=1)] | None,
        Doc("least sum of the probabilities of the tokens to choose from"),
    ] = None
    top_k: Annotated[
        Annotated[int, Range(least=-1, most=1 << 20)] | None,
        Doc("number of tokens to choose from"),
    ] = None
    min_p: Annotated[
        Annotated[float, Range(least=0, most=1)] | None,
        Doc("least probability of a token, as a part of the likeliest one's"),
    ] = None
    presence_penalty: Annotated[_Penalty | None, Doc("for tokens that occurred")] = None
    frequency_penalty: Annotated[_Penalty | None, Doc("for tokens as often as they occurred")] = (
        None
    )
    repetition_penalty: Annotated[
        Annotated[float, Range(above=0, most=10)] | None,
        Doc("factor for tokens that occurred; `1` for none"),
    ] = None
    max_tokens: Annotated[Tokens | None, Doc("most tokens of an answer")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTable:
    """``adapters = [{ … }]``: LoRA adapters of one model, for vLLM and SGLang."""

    name: Annotated[ModelName, Doc("name by which clients ask for the adapter")]
    path: Annotated[
        AdapterPath, Doc("directory of the adapter; `hf:owner/name` in the local cache")
    ]
    rank: Annotated[
        Annotated[int, Range(least=1, most=4096)] | None,
        Doc("its rank; unset: `r` in its adapter_config.json when the profile is applied"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedTable:
    """``need = { … }``: memory that the backend takes once loaded; the gate waits for it."""

    vram_bytes: Annotated[
        Size | None, Doc('memory over all claimed GPUs together, such as "18.6GiB"', key="vram")
    ] = None
    ram_bytes: Annotated[
        Size | None, Doc("host RAM, including weights in mapped files", key="ram")
    ] = None
    assume_free: Annotated[
        bool, Doc("start the model also where a GPU's memory cannot be read (MIG, no permission)")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """``[patch]``: a command run before every start, as the backend's user."""

    command: Annotated[Command, Doc("program and arguments; the program by absolute path")]
    writable: Annotated[
        Paths, Doc("paths that the command may change, if the group appliance-backend may")
    ] = ()
    expect: Annotated[
        tuple[FullText, ...],
        Length(most=64),
        Doc(
            "names that the command's output must report as applied, else the model is not started"
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """``[order]``: mounts and units that must be there before a start."""

    mounts: Annotated[Paths, Doc("paths whose file systems must be mounted")] = ()
    """Values of RequiresMountsFor=."""
    after: Annotated[Words, Doc("further units to start after")] = ()
    """Values of After=."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTable:
    """``[gateway]``: how the gateway handles requests for the profile, whatever the client says."""

    set_parameters: Annotated[
        ParameterValues,
        Doc(
            "`{ temperature = 0.6 }`: request parameters that always have these values; "
            "an inner table reaches into an object",
            key="set",
        ),
    ] = field(default_factory=dict)
    strip_parameters: Annotated[
        ParameterNames,
        Doc("request parameters that are taken out; dots reach into objects", key="strip"),
    ] = ()
    switch: Annotated[
        Literal["manual", "on-request"],
        Doc(
            "what a request does while another profile serves: it is refused with "
            "the command that would switch, or it switches"
        ),
    ] = "manual"
    keep_names: Annotated[
        bool,
        Doc(
            "whether a name that a pattern of `served` matches reaches the engine as it is: for a program "
            "with many models; else it becomes the first name"
        ),
    ] = False
    engine_key_file: Annotated[
        AbsolutePath | None,
        Doc("file with the key that the engine requires; readable for root alone"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Profile: one model, and how to serve it."""

    name: str
    """Name of the profile: the stem of its file."""
    description: Annotated[Line, Doc("for people")] = ""
    mark: Annotated[
        Mark, Doc("who is told about the profile; later changed by `appliance mark`, not here")
    ] = Mark.STANDBY
    engine: Annotated[str, Doc("the kind of engine that serves the model")]
    """Engine by its name in `appliance.engines.ENGINES`."""
    binary: Annotated[AbsolutePath, Doc("absolute path of the engine's program")] = ""
    """Path of the engine's program; empty where the engine brings its own."""
    model: Annotated[
        FullText,
        Doc(
            "an absolute path; `hf:owner/name` in the local cache, never fetched at a "
            'start; `"smollm2"`, the packaged model of the embedded engine'
        ),
    ] = ""
    """Model as the file names it; empty where the engine needs none."""
    served: Annotated[
        Served,
        Doc(
            "names and patterns that clients may ask for; unset: the profile's name", optional=True
        ),
    ]
    """Names and patterns that clients may ask for; never empty."""
    adapters: Annotated[
        tuple[AdapterTable, ...],
        Length(most=64),
        Doc("LoRA adapters beside the model, which clients ask for by name, see below"),
    ] = ()
    port: Annotated[Port | None, Doc("TCP port on loopback; set this or `socket`")] = None
    socket: Annotated[SocketPath | None, Doc("path of a unix socket in place of a port")] = None
    gpus: Annotated[
        GpuChoice,
        Doc(
            'GPUs to use: `"all"`, indexes, or `[]` for the CPU; unset: all (embedded: [])',
            optional=True,
        ),
    ]
    shared: Annotated[bool, Doc("whether the profile claims no device and runs beside others")] = (
        False
    )
    ctx: Annotated[
        Tokens | None,
        Doc("tokens that one request may use; of a `command` it is what clients are told"),
    ] = None
    """Tokens of the context; None: as many as the model was made for."""
    parallel: Annotated[
        Annotated[int, Range(least=1, most=4096)] | None, Doc("number of requests served at once")
    ] = None
    """Requests at once; None: the engine's own choice (one, for llama.cpp)."""
    kv: Annotated[
        Kv | None, Doc('type of the key and value cache: `"q8_0"`, or `{ k = "…", v = "…" }`')
    ] = None
    thinking: Annotated[
        ThinkingChoice | None,
        Doc(
            'whether the model thinks, decided on the server: "off", "on", or '
            "`{ budget = 2048 }` tokens at most; unset: as the model does by default"
        ),
    ] = None
    tool_parser: Annotated[Word | None, Doc("parser of tool calls; setting it enables them")] = None
    tools: Annotated[
        bool | None,
        Doc(
            "whether the model promises tool calls, which are then checked every hour; unset: "
            "with a `tool_parser`, and always for llama-server"
        ),
    ] = None
    """Whether tool calls are promised; None: the engine and its options tell."""
    vision: Annotated[
        bool | None,
        Doc(
            "whether the model takes images, as clients are told; unset: with a projector, or as the "
            "model's own files say"
        ),
    ] = None
    """Whether images are taken; None: the engine's options and the model's files tell."""
    sampling: Annotated[SamplingTable, _SEE_BELOW] = field(default_factory=SamplingTable)
    speculative: Annotated[Speculative | None, _SEE_BELOW] = None
    need: Annotated[NeedTable, _SEE_BELOW] = field(default_factory=NeedTable)
    warm_up: Annotated[
        WarmUp | None,
        Doc(
            "the request that proves a start; unset: `embedding` where the engine embeds "
            "or ranks, by its options or its model, `none` where it classifies, else `completion`"
        ),
    ] = None
    allow_mismatch: Annotated[
        tuple[Topic, ...],
        Length(most=len(Topic)),
        Doc(
            "facts that the running engine may report otherwise than this profile declares: "
            "told in the status, and no reason to undo a switch"
        ),
    ] = ()
    allow_traps: Annotated[
        tuple[TrapName, ...],
        Length(most=len(TrapName)),
        Doc(
            "traps that `appliance profile lint`, `validate` and `apply` do not tell of this profile, "
            "see [Traps](traps.md)"
        ),
    ] = ()
    user: Annotated[
        User | None,
        Doc(
            "user that the engine runs as; unset: backend_user of the settings, else a user of its own"
        ),
    ] = None
    extra_args: Annotated[Words, Doc("more arguments for the engine")] = ()
    env: Annotated[
        Mapping[VariableName, Text],
        Length(most=256),
        Doc(
            "environment variables of the engine; values are text. Where one names a proxy, no_proxy is given"
            " this machine too"
        ),
    ] = field(default_factory=dict)
    deadlines: Annotated[Deadlines, _SEE_BELOW] = field(default_factory=Deadlines)
    patch: Annotated[Patch | None, _SEE_BELOW] = None
    gateway: Annotated[GatewayTable, _SEE_BELOW] = field(default_factory=GatewayTable)
    order: Annotated[Ordering, _SEE_BELOW] = field(default_factory=Ordering)
    unit: Annotated[
        UnitOverrides, Doc("`Service.Nice = 5`: settings of the unit, see [[unit]](#unit)")
    ] = ()
    options: EngineOptions
    """Options of the engine: its table in the file."""

    @property
    def endpoint(self) -> Endpoint:
        """Return where the engine listens."""
        return Endpoint(port=self.port, socket=self.socket)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names by which the engine knows its model, the first for all others."""
        return plain_names(self.served, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem of a profile that its owner has to fix."""

    where: Where
    """Place of the problem; empty: the file as a whole."""
    text: str
    """Sentence about the problem, without file and line."""
