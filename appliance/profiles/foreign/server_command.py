"""Neutral form of a configuration: one command that starts a model server, and what surrounds it.

Readers of the formats make it, `appliance.profiles.foreign.profile_drafting` makes a profile of it. Text from
outside stays text: nothing is run, no file is opened and no variable of this process is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.plain_text import abridged
from appliance.model.profile_values import Gpus

MAX_CHARACTERS: Final = 256 << 10
"""Longest text that is read as a configuration, and most text that its variables may make."""


class ImportFaultError(ApplianceError):
    """Configuration that cannot be imported; `str()` says why, without the file's name."""

    def __init__(self, text: str) -> None:
        super().__init__(abridged(text))


_MOST_SHOWN: Final = 256
"""Characters of a part of a configuration that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """Word of a command line, or a value of the environment, as far as it is known from the configuration."""

    text: str
    """The word; where its value is not known, what the configuration has in its place."""
    is_known: bool = True
    note: str = ""
    """Phrase that says what was assumed, or why the value is not known; empty: neither."""


class DispositionKind(StrEnum):
    """Outcome of a part of a configuration."""

    CARRIED = "carried"
    CHANGED = "changed"
    """Kept in another form: the profile or the appliance does what it did."""
    DROPPED = "dropped"


class PartKind(StrEnum):
    """Kind of a part of a configuration."""

    OPTION = "option"
    """Option of the engine, on its command line or in a file of options."""
    VARIABLE = "variable"
    """Environment variable."""
    SETTING = "setting"
    """Anything else: of a container, a service or the program that started the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """Part of a configuration, and what became of it."""

    part: PartKind
    text: str
    """Part as it was written, on one line and without secrets."""
    outcome: DispositionKind
    reason: str | None = None
    """Reason why it has another form, or is not there; None: it is as it was."""
    key: str | None = None
    """Key of the profile that has it, such as ``[vllm] dtype``; None: none has."""

    def __post_init__(self) -> None:
        """Cut the part: a long one would stand in every profile that is made of its source."""
        if len(self.text) > _MOST_SHOWN:
            object.__setattr__(self, "text", f"{self.text[:_MOST_SHOWN]}…")
        object.__setattr__(self, "reason", abridged(self.reason) if self.reason else None)
        object.__setattr__(self, "key", self.key or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Directory or file of the host that a container sees under another path."""

    host: str
    """Path on the host; empty: a named volume, whose place is not known."""
    inside: str
    name: str = ""
    """Name of the volume, where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """Command that starts one model server, with what surrounds it."""

    origin: str
    """Place in the source, such as ``service vllm``; empty: the whole source."""
    name: str = ""
    """Name that the source gives to the model; empty: none."""
    description: str = ""
    argv: tuple[Argument, ...] = ()
    environment: Mapping[str, Argument] = field(default_factory=dict)
    image: str = ""
    """Image of the container that runs the command; empty: it runs on the host."""
    entrypoint: tuple[Argument, ...] | None = None
    """Program of the container, before `argv`; None: the image's own; empty: `argv` begins with it."""
    mounts: tuple[Mount, ...] = ()
    directory: str | None = None
    """Directory in which the command runs, for relative paths; None: not known."""
    gpus: Gpus | None = None
    """GPUs that the surroundings give to the command; None: they do not say."""
    gpu_count: int | None = None
    """Number of GPUs where only that is said; None: it is not."""
    published_port: int | None = None
    """Port at which the surroundings offer the server; None: they do not say."""
    served: tuple[str, ...] = ()
    """Further names under which clients ask for the model."""
    set_parameters: Mapping[str, object] = field(default_factory=dict)
    strip_parameters: tuple[str, ...] = ()
    on_request: bool = False
    """Whether a request for the model started it."""
    health_path: str = ""
    """Path that answers 200 once requests can be served; empty: the source does not say."""
    is_preset: bool = False
    """Whether `argv` has the keys of a preset: ``--key=value``, dashes or not."""
    user: str = ""
    unit: Mapping[str, str] = field(default_factory=dict)
    """Settings of the unit that the surroundings stand for, as the profile's [unit] names them."""
    stop_s: int | None = None
    """Seconds that a stop may take; None: the source does not say."""
    dispositions: tuple[Disposition, ...] = ()
    """Outcomes of parts that no profile is made from."""


def setting(text: str, outcome: DispositionKind, reason: str) -> Disposition:
    """Return what became of a setting of the surroundings."""
    return Disposition(part=PartKind.SETTING, text=text, outcome=outcome, reason=reason)
