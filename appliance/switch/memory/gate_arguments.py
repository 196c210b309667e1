"""Memory requirement on the gate's command line: `arguments_of` writes it, `parsed` reads it."""

from __future__ import annotations

from appliance.switch.memory.requirement import MemoryRequirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.switch.memory.peak import ObservedPeak
    from appliance.switch.memory.readings import GateArguments

FLAGS = (
    "gpus",
    "vram-bytes",
    "vram-fraction",
    "vram-estimate",
    "vram-least",
    "vram-split",
    "ram-bytes",
    "margin-bytes",
)
SWITCHES = ("assume-free",)


def arguments_of(requirement: MemoryRequirement) -> tuple[str, ...]:
    """Return the command line for `requirement`; `parsed` reads it.

    Peak and margin are left out: the one is read at the start, the other is the box's.
    """
    if not requirement.uses_gpus:
        return _words(("--ram-bytes", requirement.ram_bytes))
    gpus, split = requirement.gpus, requirement.split
    return (
        *_words(
            ("--gpus", "all" if gpus is None else ",".join(map(str, gpus))),
            ("--vram-split", ",".join(map(_exact, split)) if split else None),
            ("--vram-bytes", requirement.vram_bytes),
            (
                "--vram-fraction",
                None if requirement.fraction is None else _exact(requirement.fraction),
            ),
            ("--vram-estimate", requirement.estimate_bytes),
            ("--vram-least", requirement.least_bytes),
        ),
        *(("--assume-free",) if requirement.assume_free else ()),
        *_words(("--ram-bytes", requirement.ram_bytes)),
    )


def _words(*options: tuple[str, str | int | None]) -> tuple[str, ...]:
    return tuple(
        word for flag, value in options if value is not None for word in (flag, str(value))
    )


def _exact(number: float) -> str:
    """Write a number as short as it can be read back unchanged."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def parsed(
    arguments: GateArguments,
    *,
    peak: ObservedPeak | None = None,
    rivals: frozenset[str] = frozenset(),
    own: str = "",
) -> MemoryRequirement:
    """Return the requirement that a command line states. Raises ValueError with a sentence."""
    return MemoryRequirement(
        ram_bytes=arguments.whole("ram-bytes"),
        vram_bytes=arguments.whole("vram-bytes"),
        fraction=_fraction(arguments.optional("vram-fraction")),
        estimate_bytes=arguments.whole("vram-estimate"),
        least_bytes=arguments.whole("vram-least"),
        peak=peak,
        gpus=_gpus(arguments.optional("gpus")),
        split=_split(arguments.optional("vram-split")),
        margin_bytes=arguments.whole("margin-bytes"),
        rivals=rivals,
        own=own,
        assume_free=arguments.has("assume-free"),
    )


def _fraction(text: str | None) -> float | None:
    if text is None:
        return None
    number = _number(text)
    if not 0.0 < number <= 1.0:
        raise ValueError(f"--vram-fraction is no share of a GPU: {text}")
    return number


def _split(text: str | None) -> tuple[float, ...]:
    """Parse weights such as ``3,1``; empty for none."""
    weights = tuple(map(_number, text.split(","))) if text else ()
    if not all(0.0 <= weight < float("inf") for weight in weights):
        raise ValueError(f"--vram-split is no list of weights: {text}")
    return weights


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _gpus(text: str | None) -> tuple[int, ...] | None:
    """Parse NVML indexes such as ``0,1``, order kept; None for ``all``; empty for no GPU."""
    if text == "all":
        return None
    if not text:
        return ()
    words = text.split(",")
    if not all(w.isascii() and w.isdigit() for w in words):
        raise ValueError(f"--gpus is neither all nor a list of indexes: {text}")
    return tuple(dict.fromkeys(map(int, words)))
