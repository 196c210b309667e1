"""Facts that profiles declare in the keys that all engines have."""

from collections.abc import Iterator

from appliance.engines.shared.rendering import HF_SCHEME, hf_repository
from appliance.engines.shared.self_report import on_off
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import Profile


def exactly(topic: Topic, key: str, number: int) -> DeclaredFact:
    """Return a fact that is one number."""
    return DeclaredFact(topic=topic, key=key, text=str(number), least=number, most=number)


def stated(topic: Topic, key: str, text: str, *words: str, fails: bool = True) -> DeclaredFact:
    """Return a fact in words, `text` itself where no others are given."""
    return DeclaredFact(topic=topic, key=key, text=text, words=words or (text,), fails=fails)


def model_fact(profile: Profile) -> DeclaredFact:
    """Return the model: a path, a repository without its quantisation, or the packaged one."""
    return stated(Topic.MODEL, "model", profile.model, _without_quantisation(profile.model))


def _without_quantisation(model: str) -> str:
    repository = hf_repository(model)
    return model if repository is None else f"{HF_SCHEME}{repository.partition(':')[0]}"


def thinking_facts(profile: Profile, *, may_lack: bool = False) -> Iterator[DeclaredFact]:
    """Yield whether the server lets the model think; nothing where the profile does not say.

    Args:
        profile: The profile.
        may_lack: Whether the engine reports "off" of a model that cannot think, whatever is asked for.
    """
    if profile.thinking is not None:
        is_on = profile.thinking.on
        fails = not (is_on and may_lack)
        yield stated(Topic.THINKING, "thinking", on_off(is_on=is_on), fails=fails)


def draft_facts(profile: Profile) -> Iterator[DeclaredFact]:
    """Yield whether drafts are made, of how many tokens and by which model.

    An engine that drafts unasked only computes in another way, so that is told and fails nothing.
    """
    speculative = profile.speculative
    word = on_off(is_on=speculative is not None)
    yield stated(Topic.DRAFTS, "speculative", word, fails=speculative is not None)
    if speculative is not None and speculative.tokens is not None:
        yield exactly(Topic.DRAFT_TOKENS, "speculative.tokens", speculative.tokens)
    if speculative is not None and speculative.model is not None:
        model = speculative.model
        yield stated(Topic.DRAFT_MODEL, "speculative.model", model, _without_quantisation(model))
