"""Applied profiles: what each model needs in order to run, and what the profile declares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from appliance.model.claims import Claim
from appliance.model.memory_parts import Alternative, MemoryParts
from appliance.model.running_facts import DeclaredFact
from appliance.model.value_types import Deadline, Doc, Duration
from appliance.model.words import Mark


class WarmUp(StrEnum):
    """Request that a backend must answer before it is committed."""

    COMPLETION = "completion"
    CHAT = "chat"
    EMBEDDING = "embedding"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Memory that a backend takes once loaded, in bytes; None: not declared, hence unknown."""

    vram_bytes: int | None = None
    """Bytes over all GPUs that the backend uses together."""
    ram_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate from the headers of a model's files, over all GPUs together."""

    vram_bytes: int
    """Bytes on the GPUs; an upper bound where the architecture allows only that, see `notes`."""
    least_vram_bytes: int
    """Bytes on the GPUs with less than which the model can never run: a lower bound, of the weights
    and of the cache where the architecture is known."""
    ram_bytes: int
    """Bytes that stay in main memory, or pass through it, while the model runs."""
    vram: MemoryParts = field(default_factory=MemoryParts)
    """Parts of `vram_bytes`; all zero: not known."""
    ram: MemoryParts = field(default_factory=MemoryParts)
    """Parts of `ram_bytes`."""
    alternatives: tuple[Alternative, ...] = ()
    """Estimates of the same profile with one setting changed."""
    notes: tuple[str, ...] = ()
    """Phrases that say what the figure leaves out or rounds up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """``[deadlines]``: how long each step may take; ``"90s"``, ``"5m"``, or seconds."""

    no_progress_s: Annotated[
        Deadline,
        Doc(
            "time after which a start without progress has failed: without CPU time, changes of memory, "
            "bytes read or bytes written, a burst of log lines among them; a line now and then is none",
            key="no_progress",
        ),
    ] = 300.0
    stop_s: Annotated[Deadline, Doc("from SIGTERM to SIGKILL", key="stop")] = 90.0
    drain_s: Annotated[Duration, Doc("for requests in flight before a stop", key="drain")] = 30.0
    release_s: Annotated[
        Deadline, Doc("for the claimed memory and the port to come back", key="release")
    ] = 60.0
    warm_up_s: Annotated[
        Deadline, Doc("for the one real request after the load", key="warm_up")
    ] = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Address on which a backend listens: a loopback port, or a unix socket. Exactly one is set."""

    port: int | None = None
    socket: str | None = None

    def __str__(self) -> str:
        """Return the address as a sentence names it: ``:8022``, or the socket's path."""
        return f":{self.port}" if self.socket is None else self.socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """Handling of requests for a profile by the gateway, apart from passing them on."""

    set_parameters: Mapping[str, object] = field(default_factory=dict)
    """Request parameters that have these values whatever the client says; dots reach into
    objects."""
    strip_parameters: tuple[str, ...] = ()
    """Request parameters that are taken out, in the same spelling."""
    on_request: bool = False
    """Whether a request for the profile may switch to it."""
    keep_names: bool = False
    """Whether names that a pattern matches reach the engine as they are."""
    engine_key_file: str | None = None
    """Absolute path of the file with the engine's own key, which root alone may read; None: the
    engine wants none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """Abilities of a profile's model as it is run, besides tool calls; None: not known."""

    vision: bool | None = None
    embeddings: bool | None = None
    reasoning: bool | None = None
    """Whether answers come with the thinking before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """LoRA adapter that an engine serves beside its model."""

    name: str
    """Name by which clients ask for it."""
    engine_name: str
    """Model that a request to the engine names to reach it."""
    path: str
    """Directory or file that must exist before a start."""
    most_rank: int | None = None
    """Highest rank for which the engine is started; None: it looks itself, or an earlier release applied it."""


def is_pattern(name: str) -> bool:
    """Tell whether a served name is a pattern: ``*`` stands for any text, ``?`` for one character."""
    return "*" in name or "?" in name


def plain_names(served: Sequence[str], profile: str) -> tuple[str, ...]:
    """Return the served names without patterns; the profile's name when all are patterns."""
    return tuple(name for name in served if not is_pattern(name)) or (profile,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A profile as it is installed: what the daemon and the CLI know about it.

    `appliance apply` writes one of these for every unit it installs; the daemon parses no profile.
    """

    name: str
    description: str
    engine: str
    model: str
    """Model as the profile names it: a path, or ``hf:owner/name``; empty for none."""
    model_path: str | None
    """File or directory that must exist before a start; None: nothing to check."""
    binary: str
    """Path of the engine's program, which the unit runs after gate and wrapper."""
    served: tuple[str, ...]
    """Names and patterns that clients may ask for; never empty."""
    endpoint: Endpoint
    health_path: str
    claim: Claim
    need: Need
    deadlines: Deadlines
    warm_up: WarmUp
    first_mark: Mark
    source_path: str
    source_sha256: str
    """Digest of the profile's file when it was applied; another digest now means that the file was
    edited since."""
    conflicts: tuple[str, ...] = field(default=())
    """Names of the other applied profiles whose claims intersect, sorted."""
    fingerprint: str = ""
    """Digest of all that decides how much memory the profile takes; empty: installed by an older
    release."""
    gpus: Literal["all"] | tuple[int, ...] = ()
    """NVML indexes of the GPUs that the profile uses, claimed or shared; empty: none."""
    gpu_split: tuple[float, ...] = ()
    """Weights by which its memory is spread over `gpus`, in their order; fewer entries: the last
    GPUs hold none; empty: over all, by their size."""
    vram_fraction: float | None = None
    """Share of each GPU's memory that the engine takes whatever the model is; None: no such rule."""
    ram_fraction: float | None = None
    """Share of main memory that the engine takes whatever the model is, on the CPU; None: no such
    rule."""
    estimate: Estimate | None = None
    """Estimate from the headers of the model's files; None: unknown, see `estimate_problem`."""
    estimate_problem: str = ""
    """Reason why there is no estimate, as a phrase; empty: there is one, or none was needed."""
    locks_memory: bool = False
    """Whether the model's weights must be locked in RAM (mlock)."""
    shares_cache: bool = False
    """Whether all requests share one cache of `context_tokens`."""
    assume_free: bool = False
    """Whether to start it also on GPUs whose memory cannot be read."""
    draft_path: str | None = None
    """File or directory of the draft model, which must exist too; None: nothing to check."""
    speculative: bool = False
    """Whether the profile declares speculative decoding."""
    tools: bool = False
    """Whether the profile promises tool calls."""
    abilities: Abilities = field(default_factory=Abilities)
    context_tokens: int | None = None
    """Tokens that one request may use; None: not known."""
    file_unix_s: int = 0
    """Unix seconds of the model's file, or of the profile's where there is none; 0: not known."""
    declared: tuple[DeclaredFact, ...] = ()
    """Facts that the running engine has to report about itself, where it reports them."""
    handling: Handling = field(default_factory=Handling)
    user: str = ""
    """User that the profile's engine runs as; empty: a user of its own, made at each start."""
    files: tuple[str, ...] = ()
    """Further files that the engine reads, as its arguments name them."""
    places: tuple[str, ...] = ()
    """Targets of links on the way to the model and to `files`, as they were when the profile was
    applied."""
    command: tuple[str, ...] = ()
    """Program and arguments of the engine, with the spellings for other builds
    (`appliance.model.engine_build`); empty: an engine that is not asked about its build, or applied by an
    earlier release."""
    programs: tuple[str, ...] = ()
    """Further programs, likewise with links followed: interpreters of the binary, the patch
    hook."""
    adapters: tuple[Adapter, ...] = ()
    """LoRA adapters that the engine serves beside the model."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return all that clients may ask for: served names, patterns and adapters."""
        return (*self.served, *(adapter.name for adapter in self.adapters))

    @property
    def companions(self) -> tuple[str, ...]:
        """Return the files and directories of what is loaded with the model: a draft, adapters."""
        draft = () if self.draft_path is None else (self.draft_path,)
        return (*draft, *(adapter.path for adapter in self.adapters))


Catalogue = Mapping[str, Applied]
"""Applied profiles by name."""


def requested_name(applied: Applied) -> str:
    """Return a name by which clients ask for the profile."""
    return plain_names(applied.served, applied.name)[0]


def text_request(applied: Applied, prompt: str) -> tuple[str, dict[str, object]] | None:
    """Return path and body of a request; None: the profile generates no text."""
    model = requested_name(applied)
    if applied.warm_up is WarmUp.CHAT:
        messages = [{"role": "user", "content": prompt}]
        return "/v1/chat/completions", {"model": model, "messages": messages}
    if applied.warm_up is WarmUp.COMPLETION:
        return "/v1/completions", {"model": model, "prompt": prompt}
    return None
