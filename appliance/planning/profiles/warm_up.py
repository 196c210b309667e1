"""Request that proves a start; an engine that embeds, ranks or classifies answers no completion.

The profile's ``warm_up`` goes first, then its options, then what the engine would choose itself from
the model's own files.
"""

from collections.abc import Iterator
from typing import Final

from appliance.domain.model_headers import Safetensors
from appliance.domain.profile import WarmUp
from appliance.domain.spec import Problem, Profile
from appliance.engines import ENGINES
from appliance.engines.shared.engine import Task

_PROOF: Final = {
    Task.GENERATE: WarmUp.COMPLETION,
    Task.EMBED: WarmUp.EMBEDDING,
    Task.CLASSIFY: WarmUp.NONE,
}
_GENERATED: Final = frozenset({WarmUp.COMPLETION, WarmUp.CHAT})


def warm_up_of(profile: Profile, model: Safetensors | None) -> WarmUp:
    """Return the request that proves a start of `profile`.

    Args:
        profile: A valid one.
        model: Its model's headers; None: not read, or of another format.
    """
    if profile.warm_up is not None:
        return profile.warm_up
    engine = ENGINES[profile.engine]
    task = engine.task(profile)
    if task is None and model is not None:
        task = engine.model_task(model)
    return _PROOF[task or Task.GENERATE]


def warm_up_problems(profile: Profile) -> Iterator[Problem]:
    """Return the problem of a ``warm_up`` that the engine cannot answer as the profile runs it."""
    task = ENGINES[profile.engine].task(profile)
    if task in {Task.EMBED, Task.CLASSIFY} and profile.warm_up in _GENERATED:
        text = (
            f'"{profile.warm_up}" is not answered by an engine that is run to {task}: remove it,'
            f' or write "{_PROOF[task]}"'
        )
        yield Problem(where=("warm_up",), text=text)
