"""Methods of speculative decoding that engines have, and the rules for a profile's ``speculative``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final, Literal

from appliance.model.spec import NgramTable, Problem, Profile, Speculative


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftMethod:
    """Method of speculative decoding, by which an engine drafts tokens before the model verifies them."""

    name: str
    """Name in the engine's own arguments."""
    model: Literal["required", "optional", "none"] = "none"
    """Whether a model of its own drafts; optional: the model's own file may have what drafts."""
    sizes: frozenset[str] = frozenset()
    """Fields of `NgramTable` that the engine has for it."""
    counts_tokens: bool = True
    """Whether ``speculative.tokens`` must be set; False: the engine knows a number."""


_MODEL_KEYS: Final = (
    *("min_tokens", "min_probability"),
    *("gpu_layers", "device", "tensor_parallel", "kv"),
)
"""Keys of `Speculative` about what drafts by a model, its place and its cache."""


def by_name(ours: Mapping[str, DraftMethod]) -> Mapping[str, DraftMethod]:
    """Return methods by all names that a profile may write: those of `ours`, and the engine's own."""
    return dict(ours) | {m.name: m for m in ours.values() if m.name not in ours}


def used_methods(
    speculative: Speculative, methods: Mapping[str, DraftMethod]
) -> tuple[DraftMethod, ...]:
    """Return the methods that a valid profile names, in its order."""
    return tuple(methods[name] for name in speculative.methods)


def draft_problems(
    profile: Profile,
    methods: Mapping[str, DraftMethod],
    *,
    keys: frozenset[str],
    several: bool = False,
) -> Iterator[Problem]:
    """Find what is wrong with ``speculative`` for an engine.

    Args:
        profile: The profile.
        methods: Methods of its engine, by name.
        keys: Those of `_MODEL_KEYS` that the engine has.
        several: Whether the engine takes several methods at once.
    """
    found = profile.speculative
    if found is None:
        return
    if unknown := [name for name in found.methods if name not in methods]:
        text = f'"{unknown[0]}" is unknown to {profile.engine}: use one of {", ".join(methods)}'
        yield _problem("method", text)
        return
    if len(found.methods) > 1 and not several:
        yield _problem("method", f"{profile.engine} drafts by one method: keep one")
    used = used_methods(found, methods)
    if all(method.model == "none" for method in used):
        yield from _unused(found, ("model", *_MODEL_KEYS), "no model drafts here: remove it")
    else:
        lacking = (key for key in _MODEL_KEYS if key not in keys)
        yield from _unused(found, lacking, f"{profile.engine} cannot set this: remove it")
    yield from _missing(profile, found, used)
    yield from _sizes(profile, found, used)


def _unused(found: Speculative, keys: Iterable[str], text: str) -> Iterator[Problem]:
    yield from (_problem(key, text) for key in keys if getattr(found, key) not in {None, ()})


def _missing(
    profile: Profile, found: Speculative, used: Sequence[DraftMethod]
) -> Iterator[Problem]:
    for name, method in zip(found.methods, used, strict=True):
        if method.model == "required" and found.model is None:
            text = (
                f'"{name}" drafts with a model of its own, and {profile.engine} does not start '
                "without one: set speculative.model"
            )
            yield _problem("method", text)
    if found.tokens is None and any(method.counts_tokens for method in used):
        text = "tokens is missing: the number that is drafted in each step"
        yield Problem(where=("speculative",), text=text)


def _sizes(profile: Profile, found: Speculative, used: Sequence[DraftMethod]) -> Iterator[Problem]:
    known = {size for method in used for size in method.sizes}
    for size in (field.name for field in fields(NgramTable)):
        if getattr(found.ngram, size) is not None and size not in known:
            text = f"{profile.engine} has no such size for {', '.join(found.methods)}: remove it"
            yield Problem(where=("speculative", "ngram", size), text=text)


def _problem(key: str, text: str) -> Problem:
    return Problem(where=("speculative", key), text=text)
