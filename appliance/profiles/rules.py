"""Rules that profiles must meet beyond the types of their values: each alone, and two together.

Two may not listen on the same port or socket, except if their claims intersect: such profiles never
run together.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Task
from appliance.engines.shared.invocation import HF_SCHEME
from appliance.engines.shared.refused_arguments import VARIABLE_FAMILIES, VARIABLES
from appliance.model.profile import Catalogue, WarmUp, is_pattern
from appliance.model.spec import Problem, Profile
from appliance.profiles.compilation import PROOF, claim_of, reaches
from appliance.routing.model_names import covers
from appliance.switch.units.overrides import is_data_path, is_foreign_unit, refusal

_HF: Final = re.compile(r"hf:[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?\Z", re.ASCII)
_VARIABLES: Final[Mapping[str, str]] = {
    name: reason
    for variables in (VARIABLES, *(engine.refused_variables for engine in ENGINES.values()))
    for name, reason in variables.items()
}
_VARIABLE_FAMILIES: Final[Mapping[str, str]] = {
    start: reason
    for families in (
        VARIABLE_FAMILIES,
        *(engine.refused_variable_families for engine in ENGINES.values()),
    )
    for start, reason in families.items()
}
_KEYS: Final = ("port", "socket")
_GENERATED: Final = frozenset({WarmUp.COMPLETION, WarmUp.CHAT})


def problems(profile: Profile, unread: frozenset[str] = frozenset()) -> tuple[Problem, ...]:
    """Return everything that is wrong with `profile`; empty: it can be applied.

    Args:
        profile: The profile.
        unread: Keys and tables of its file with faults, which `profile` lacks: a rule that needs one of
            them is left out.
    """
    return tuple(problem for rule, keys in RULES if not unread & keys for problem in rule(profile))


def _engine(profile: Profile) -> Iterator[Problem]:
    yield from ENGINES[profile.engine].problems(profile)


def _endpoint(profile: Profile) -> Iterator[Problem]:
    port, socket = profile.endpoint.port, profile.endpoint.socket
    if port is None and socket is None:
        yield Problem(where=(), text="port or socket is missing: set one of them")
    if port is not None and socket is not None:
        yield Problem(where=("socket",), text="port and socket exclude each other: keep one")


def _model(profile: Profile) -> Iterator[Problem]:
    model, engine = profile.model, ENGINES[profile.engine]
    if not model:
        if engine.needs_model:
            yield Problem(where=(), text='"model" is missing: a path, or hf:owner/name')
    elif model.startswith(HF_SCHEME):
        if _HF.match(model) is None:
            text = f'"{model}" is not of the form hf:owner/name'
            yield Problem(where=("model",), text=text)
        elif engine.packaged_model:
            yield Problem(where=("model",), text="the embedded engine takes the path of a file")
    elif not model.startswith("/") and model != engine.packaged_model:
        text = f'"{model}" is neither an absolute path nor hf:owner/name'
        hint = f' nor "{engine.packaged_model}"' if engine.packaged_model else ""
        yield Problem(where=("model",), text=text + hint)


def _adapters(profile: Profile) -> Iterator[Problem]:
    """Find adapters that a request could not be meant for: another name, or a pattern, has theirs."""
    patterns = [name for name in profile.served if is_pattern(name)]
    taken = {*profile.models, profile.name}
    for place, adapter in enumerate(profile.adapters):
        where = ("adapters", place, "name")
        if adapter.name in taken:
            text = f'"{adapter.name}" is already a name of this profile: choose another'
            yield Problem(where=where, text=text)
        for pattern in (one for one in patterns if covers(one, adapter.name)):
            text = (
                f'"{pattern}" covers the adapter {adapter.name}: whoever misspells it would be answered by the '
                "model without it: narrow the pattern"
            )
            yield Problem(where=("served", profile.served.index(pattern)), text=text)
        taken.add(adapter.name)


def _binary(profile: Profile) -> Iterator[Problem]:
    if not profile.binary and ENGINES[profile.engine].needs_binary:
        text = f'"binary" is missing: the absolute path of the {profile.engine} program'
        yield Problem(where=(), text=text)


def _need(profile: Profile) -> Iterator[Problem]:
    if profile.gpus == () and profile.need.vram_bytes:
        text = "this profile claims no GPU: remove need.vram, or set gpus"
        yield Problem(where=("need", "vram"), text=text)
    if profile.gpus == () and profile.need.assume_free:
        text = "this profile claims no GPU: remove need.assume_free, or set gpus"
        yield Problem(where=("need", "assume_free"), text=text)


def _order(profile: Profile) -> Iterator[Problem]:
    for place, unit in enumerate(profile.order.after):
        where = ("order", "after", place)
        if unit.startswith("appliance-"):
            text = f'"{unit}": the order among the appliance\'s own units is fixed'
            yield Problem(where=where, text=text)
        elif not is_foreign_unit(unit):
            text = (
                f'"{unit}" is not a unit that a model may wait for, such as network-online.target'
            )
            yield Problem(where=where, text=text)


def _patch(profile: Profile) -> Iterator[Problem]:
    for place, path in enumerate(profile.patch.writable if profile.patch else ()):
        if not is_data_path(path):
            text = (
                f'"{path}" is a directory of the system or the appliance, or a whole home: '
                "a patch may change a copy of its own, such as /opt/engine"
            )
            yield Problem(where=("patch", "writable", place), text=text)


def _overrides(profile: Profile) -> Iterator[Problem]:
    for override in profile.unit:
        if reason := refusal(override):
            yield Problem(where=("unit", override.section, override.key), text=reason)


def _variables(profile: Profile) -> Iterator[Problem]:
    for name in profile.env:
        families = (why for start, why in _VARIABLE_FAMILIES.items() if name.startswith(start))
        if reason := _VARIABLES.get(name) or next(families, None):
            yield Problem(where=("env", name), text=f'"{name}" is refused: {reason}')


def _handling(profile: Profile) -> Iterator[Problem]:
    """Return a problem for each parameter that is both set and removed."""
    for place, stripped in enumerate(profile.gateway.strip_parameters):
        for path in profile.gateway.set_parameters:
            if reaches(stripped, path) or reaches(path, stripped):
                text = f'"{stripped}" is removed, and "{path}" is set: keep one'
                yield Problem(where=("gateway", "strip", place), text=text)


def _warm_up(profile: Profile) -> Iterator[Problem]:
    """Return the problem of a ``warm_up`` that the engine cannot answer as the profile runs it."""
    task = ENGINES[profile.engine].task(profile)
    if task in {Task.EMBED, Task.CLASSIFY} and profile.warm_up in _GENERATED:
        text = (
            f'"{profile.warm_up}" is not answered by an engine that is run to {task}: remove it,'
            f' or write "{PROOF[task]}"'
        )
        yield Problem(where=("warm_up",), text=text)


_ALL_KEYS: Final = frozenset(field.name for field in fields(Profile)) - {"name", "options"}
_NO_ENGINES_KEYS: Final = frozenset(
    {"deadlines", "description", "gateway", "mark", "order", "unit"}
)
_ENGINES_KEYS: Final = (_ALL_KEYS | ENGINES.keys()) - _NO_ENGINES_KEYS
RULES: Final[Sequence[tuple[Callable[[Profile], Iterable[Problem]], frozenset[str]]]] = (
    (_endpoint, frozenset({"port", "socket"})),
    (_model, frozenset({"model"})),
    (_adapters, frozenset({"adapters", "served"})),
    (_binary, frozenset({"binary"})),
    (_need, frozenset({"gpus", "need"})),
    (_order, frozenset({"order"})),
    (_patch, frozenset({"patch"})),
    (_handling, frozenset({"gateway"})),
    (_overrides, frozenset({"unit"})),
    (_variables, frozenset({"env"})),
    (_engine, _ENGINES_KEYS),
    (_warm_up, _ENGINES_KEYS),
)
"""Rules, with the keys and tables of the file that each reads, beside the engine's name."""


def collisions(
    profiles: Mapping[str, Profile], reserved: Mapping[int, str], before: Catalogue
) -> Mapping[str, tuple[Problem, ...]]:
    """Return problems by profile; profiles without a problem are absent.

    Of two profiles with one address, the one that had it already keeps it: the problem is the other's.

    Args:
        profiles: Every profile of the box by name.
        reserved: Ports that others own, and what to call their owner.
        before: Profiles as they are applied now.
    """
    found: dict[str, list[Problem]] = {}
    for name in sorted(profiles):
        for problem in _reserved(profiles[name], reserved):
            found.setdefault(name, []).append(problem)
        for place, adapter in enumerate(profiles[name].adapters):
            if adapter.name in profiles:
                text = f'"{adapter.name}" is the profile {adapter.name}: choose another name'
                problem = Problem(where=("adapters", place, "name"), text=text)
                found.setdefault(name, []).append(problem)
    claims = {name: claim_of(profile) for name, profile in profiles.items()}
    settled = {
        name
        for name, profile in profiles.items()
        if name in before
        and (before[name].endpoint, before[name].claim) == (profile.endpoint, claims[name])
    }
    for name, others in _sharers(profiles).items():
        for other in others:
            is_older = name in settled and other not in settled
            if not is_older and not claims[name].intersects(claims[other]):
                found.setdefault(name, []).extend(_shared(profiles[name], profiles[other]))
    return {name: tuple(problems) for name, problems in found.items()}


def _sharers(profiles: Mapping[str, Profile]) -> Mapping[str, list[str]]:
    """Return, by name, the other profiles that have the same port or socket, sorted."""
    users: dict[tuple[str, object], list[str]] = {}
    for name, profile in sorted(profiles.items()):
        for key in _KEYS:
            users.setdefault((key, getattr(profile.endpoint, key)), []).append(name)
    return {
        name: sorted(
            {
                other
                for key in _KEYS
                if (address := getattr(profile.endpoint, key)) is not None
                for other in users[key, address]
            }
            - {name}
        )
        for name, profile in sorted(profiles.items())
    }


def _reserved(profile: Profile, reserved: Mapping[int, str]) -> Iterator[Problem]:
    port = profile.endpoint.port
    if port is not None and (owner := reserved.get(port)) is not None:
        yield Problem(where=("port",), text=f"port {port} belongs to {owner}: choose another")


def _shared(one: Profile, other: Profile) -> Iterator[Problem]:
    for key in _KEYS:
        address = getattr(one.endpoint, key)
        if address is not None and address == getattr(other.endpoint, key):
            text = (
                f"{key} {address} is also that of {other.name}.toml, and their claims do not "
                "intersect, so both may run at once: choose another"
            )
            yield Problem(where=(key,), text=text)
