"""Changes that make the copy of an example this box's own: its model, program, port and names."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from appliance.engines import ENGINES
from appliance.profiles.foreign.profile_draft import NOT_FOUND, PROGRAMS, HostFacts

_NEED = "need"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChange:
    """Change of one key."""

    where: tuple[str, ...]
    """Names on the way to the key: ``("llama-server", "mmproj")``."""
    value: object
    """Value as TOML has it; None: the key goes."""
    comment: str | None = None
    """Phrase after the value; None: the comment that is there stays. Empty: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleUse:
    """Example that a profile is copied from, and the model of the copy."""

    example: str
    """Name of the example."""
    table: Mapping[str, object]
    """Content of the example."""
    model: str | None
    """Model as the profile will name it; None: the example's own."""
    title: str
    """Name of the model for people."""


def example_changes(
    use: ExampleUse,
    host: HostFacts,
    is_there: Callable[[str], bool],
    *,
    name: str,
    tokens: int | None,
) -> Iterator[KeyChange]:
    """Yield the changes of a copy.

    Args:
        use: The example, and the model of the copy.
        host: Facts of this machine.
        is_there: Returns whether there is a file at a path.
        name: Name of the new profile.
        tokens: Context that a person asks for; None: the example's.
    """
    if use.model is not None:
        text = f"{use.title}, as the example {use.example}"
        yield KeyChange(where=("description",), value=text)
        is_packaged = not str(use.table.get("model", "")).startswith(("/", "hf:"))
        yield KeyChange(where=("model",), value=use.model, comment="" if is_packaged else None)
    yield from _program(use, host, is_there)
    yield from _served(use, name)
    port = use.table.get("port")
    if isinstance(port, int):
        free, note = host.free_port(port)
        if free != port:
            yield KeyChange(where=("port",), value=free, comment=note)
    if tokens is not None:
        yield KeyChange(where=("ctx",), value=tokens, comment="as asked")
    if leaves_need_out(use):
        yield KeyChange(where=(_NEED,), value=None)


def _program(
    use: ExampleUse, host: HostFacts, is_there: Callable[[str], bool]
) -> Iterator[KeyChange]:
    binary = use.table.get("binary")
    if not isinstance(binary, str) or is_there(binary):
        return
    engine = str(use.table.get("engine"))
    found = host.find_program(engine) if engine in PROGRAMS else None
    if found is None:
        yield KeyChange(where=("binary",), value=binary, comment=NOT_FOUND)
    else:
        yield KeyChange(where=("binary",), value=found, comment="")


def _served(use: ExampleUse, name: str) -> Iterator[KeyChange]:
    """Yield the names that clients ask for: the new profile's in place of the example's own."""
    served = use.table.get("served")
    if isinstance(served, list) and use.example in served:
        names = [name if one == use.example else one for one in served]
        yield KeyChange(where=("served",), value=list(dict.fromkeys(names)))


def leaves_need_out(use: ExampleUse) -> bool:
    """Tell whether the example's declared need is not the copy's: of another model, or of other cards."""
    if _NEED not in use.table:
        return False
    engine = ENGINES.get(str(use.table.get("engine")))
    # Engines that run PyTorch take a share of each GPU.
    is_share = engine is not None and engine.weights == "safetensors"
    model = use.table.get("model")
    return is_share or (use.model is not None and _last(use.model) != _last(str(model)))


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
