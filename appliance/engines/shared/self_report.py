"""Verification of an engine by its own report: facts that a profile declares, and readers of pages and log lines.

Pages and logs come from another process, which may write anything: readers take text of bounded
length, in linear time, and give what they cannot use as `Nonsense`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.engines.shared.invocation import HF_SCHEME, hf_repository
from appliance.model.json_reader import decode_json
from appliance.model.running_facts import DeclaredFact, ReportedFact, Topic
from appliance.model.spec import Profile

_MOST_TEXT: Final = 200
_MOST_NUMBER: Final = 1 << 48
_VERSION: Final = re.compile(r"\d[\w.]{0,80}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Nonsense:
    """Report that cannot be used."""

    text: str
    """Sentence part about it, after the source: ``is not a JSON object``."""


Reading = ReportedFact | Nonsense


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPage:
    """Page on which an engine describes itself."""

    path: str
    read: Callable[[str], Iterable[Reading]]
    """Function that reads the page's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfReport:
    """Places in which an engine describes itself."""

    pages: tuple[ReportPage, ...] = ()
    log: Callable[[Sequence[str]], Iterable[Reading]] = lambda _lines: ()
    """Function that reads the first lines of the engine's log since its start; nothing: it is not read."""


def _itself(text: str) -> tuple[str, ...]:
    return (text,)


class PageReader:
    """Reader of members of one page.

    Args:
        path: The page's path, for sources.
        page: Its text.
    """

    def __init__(self, path: str, page: str) -> None:
        self._path = path
        self.document = _decoded(page)
        """Decoded page; None: it is no JSON."""

    def mapping(self) -> Mapping[str, object] | None:
        """Return the page's object; None: the page is something else."""
        return self.document if isinstance(self.document, dict) else None

    def rows(self) -> Sequence[Mapping[str, object]] | None:
        """Return the objects in the page's list; None: the page is something else."""
        if not isinstance(self.document, list):
            return None
        return [row for row in self.document if isinstance(row, dict)]

    def nonsense(self, what: str) -> Nonsense:
        """Return that the page is not `what`."""
        return Nonsense(text=f"{self._path} is no {what}")

    def number(self, topic: Topic, owner: Mapping[str, object], member: str) -> Iterator[Reading]:
        """Yield the fact in a member that is a whole number; nothing where it is absent or null."""
        value = owner.get(member)
        if type(value) is int and 0 <= value <= _MOST_NUMBER:
            yield ReportedFact(
                topic=topic, source=f"{self._path} {member}", text=str(value), number=value
            )
        elif value is not None:
            yield Nonsense(text=f"{self._path} {member} is no whole number")

    def word(
        self,
        topic: Topic,
        owner: Mapping[str, object],
        member: str,
        *,
        words: Callable[[str], tuple[str, ...]] = _itself,
    ) -> Iterator[Reading]:
        """Yield the fact in a member that is text; nothing where it is absent, null or empty.

        Args:
            topic: Of the fact.
            owner: Object with the member.
            member: Name of the member.
            words: Function that returns the words that the text stands for.
        """
        value = owner.get(member)
        if isinstance(value, str) and value:
            yield spoken(topic, f"{self._path} {member}", value, *words(value))
        elif value is not None and value != "":
            yield Nonsense(text=f"{self._path} {member} is no text")


def spoken(topic: Topic, source: str, text: str, *words: str, subject: str = "") -> ReportedFact:
    """Return a fact in words, `text` itself where no others are given."""
    return ReportedFact(
        topic=topic,
        source=source,
        text=shown(text),
        words=words or (text,),
        subject=subject,
    )


def counted(topic: Topic, source: str, number: int) -> ReportedFact:
    """Return a fact that is a number."""
    return ReportedFact(topic=topic, source=source, text=str(number), number=number)


def shown(text: str) -> str:
    """Return a text of an engine fit for a message: cut, without control characters."""
    cut = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in cut)


def version_words(text: str) -> tuple[str, ...]:
    """Return the number in a version: ``11549`` of ``b11549-1a2b3c4d``, as of ``version: 11549 (1a2b3c4d)``.

    A local label goes: of ``0.32.0+cpu``, as a package is called, the program itself says ``0.32.0``.
    """
    number = _VERSION.search(text)
    return (number[0] if number else text,)


def on_off(*, is_on: bool) -> str:
    """Return the word for a switch."""
    return "on" if is_on else "off"


def _decoded(page: str) -> object:
    try:
        return decode_json(page)
    except ValueError:
        return None


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
        may_lack: Whether the engine reports "off" of a model that cannot think, whatever the request.
    """
    if profile.thinking is not None:
        is_on = profile.thinking.on
        fails = not (is_on and may_lack)
        yield stated(Topic.THINKING, "thinking", on_off(is_on=is_on), fails=fails)


def draft_facts(profile: Profile) -> Iterator[DeclaredFact]:
    """Yield whether drafts are made, of how many tokens and by which model.

    An engine that drafts although the profile does not say so only computes in another way: a difference that fails
    nothing.
    """
    speculative = profile.speculative
    word = on_off(is_on=speculative is not None)
    yield stated(Topic.DRAFTS, "speculative", word, fails=speculative is not None)
    if speculative is not None and speculative.tokens is not None:
        yield exactly(Topic.DRAFT_TOKENS, "speculative.tokens", speculative.tokens)
    if speculative is not None and speculative.model is not None:
        model = speculative.model
        yield stated(Topic.DRAFT_MODEL, "speculative.model", model, _without_quantisation(model))
