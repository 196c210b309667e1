"""Declaration of a profile: the facts that its running engine has to report about itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.self_report import shown, version_words
from appliance.model.engine_build import EngineBuild
from appliance.model.patch_report import verdicts
from appliance.model.running_facts import DeclaredFact, ReportedFact, Topic
from appliance.model.spec import Profile

_APPLIED: Final = "applied"
_ROUNDED: Final = 0.02
"""Share by which buffers may differ from the tensors in them: backends align and pad each."""
_ROUNDED_BYTES: Final = 32 << 20


def declared_facts(profile: Profile, gpu_weights: range | None = None) -> tuple[DeclaredFact, ...]:
    """Return the facts of a valid profile; a mismatch that it allows fails nothing.

    Args:
        profile: The profile.
        gpu_weights: Least and most bytes of its model's weights on the GPUs; None: not known.
    """
    facts = (*_facts(profile), *_weight_facts(gpu_weights))
    return tuple(
        replace(fact, fails=fact.fails and fact.topic not in profile.allow_mismatch)
        for fact in facts
    )


def _weight_facts(placed: range | None) -> Iterator[DeclaredFact]:
    """Yield the weights that belong on the GPUs: experts on the wrong side make a difference of GiB."""
    if placed is not None:
        yield DeclaredFact(
            topic=Topic.CPU_EXPERTS,
            key="gpu_layers, cpu_experts",
            text=f"{placed.stop / (1 << 30):.2f} GiB",
            least=max(0, int(placed.start * (1 - _ROUNDED)) - _ROUNDED_BYTES),
            most=int(placed.stop * (1 + _ROUNDED)) + _ROUNDED_BYTES,
        )


def _facts(profile: Profile) -> Iterator[DeclaredFact]:
    yield from ENGINES[profile.engine].declared(profile)
    for name in () if profile.patch is None else profile.patch.expect:
        yield DeclaredFact(
            topic=Topic.PATCH,
            key="patch.expect",
            text=_APPLIED,
            words=(_APPLIED,),
            subject=name,
        )


def build_facts(build: EngineBuild | None) -> Iterator[DeclaredFact]:
    """Yield the build that the command was spelled for; nothing where it is not known.

    A difference fails nothing: programs write versions in more than one form.
    """
    if build is not None and build.version:
        yield DeclaredFact(
            topic=Topic.BUILD,
            key="binary",
            text=shown(build.version),
            words=version_words(build.version),
            fails=False,
        )


def patch_facts(declared: Sequence[DeclaredFact], lines: Sequence[str]) -> Iterator[ReportedFact]:
    """Yield what the log of a start says about the patches among `declared`.

    The patch command writes to it before the engine does, and a plug-in of the engine after it: the
    last line on a patch counts.
    """
    names = tuple(fact.subject for fact in declared if fact.topic is Topic.PATCH)
    for name, is_applied in verdicts(lines, names).items():
        word = _APPLIED if is_applied else f"not {_APPLIED}"
        yield ReportedFact(topic=Topic.PATCH, source="log", text=word, words=(word,), subject=name)
