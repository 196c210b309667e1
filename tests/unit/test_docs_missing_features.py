"""Pages and docstrings call a feature missing only while it is missing.

A sentence with a signal word is either about the state of a box, and listed in `ABOUT_A_BOX`, or
about this tree: then `MISSING` ties it to features, and `FEATURES` ties those to paths that must not
exist. Whoever adds a feature sees which sentences have become false. Decisions are left out: they
keep what was true when they were taken.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {ROOT / "docs/reference" / f"{name}.md" for name in ("cli", "profiles", "settings")}
DECISIONS = set((ROOT / "docs/decisions").glob("*.md"))
WRITTEN = {ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")}
PAGES = sorted(WRITTEN - GENERATED - DECISIONS)

FEATURES = {
    "dashboard": ("appliance/web/page",),
    "HTTP API for the status": ("units/appliance-web.*",),
}
"""Paths that come with a feature: none may exist while a sentence calls the feature missing."""

MISSING = {
    "a status API that is to come": ("HTTP API for the status",),
    "There is no dashboard and no HTTP API for the status yet": (
        "dashboard",
        "HTTP API for the status",
    ),
    "Not there yet": ("dashboard",),
    "No dashboard, no HTTP API for the status": (
        "dashboard",
        "HTTP API for the status",
    ),
    "`appliance-web` is reserved": ("dashboard",),
    "nothing listens there yet": ("HTTP API for the status",),
    "the status API; no profile may use it": ("HTTP API for the status",),
}
"""Parts of sentences that call a feature missing, with those features."""

ABOUT_A_BOX = (
    "An **address** need not be there yet",
    "a process that has ended and is not yet cleaned up",
    "ended ones that the disk would not take yet",
    "more RAM than the box has, or than will be available",
    "null: not yet",
    "the box as it will be when",
    "the gateway binds what systemd does not have yet",
    "the gate then waits for what is not yet available",
)
"""Parts of sentences with a signal word that are about the state of a box."""

SIGNALS = re.compile(
    r"\byet\b|\bto come\b(?! at| back)|\bwill (?:be|have)\b|\b[Uu]ntil (?:then|there is)\b"
    r"|\b[Oo]nce there is\b|\blater (?:release|version)\b|\bplanned\b(?! (?:window|shutdown|reboot))|\bnot implemented\b"
)
"""Words of sentences that may call a feature missing."""
FEATURE_WORDS = re.compile(r"\b(?:dashboard|status API|HTTP API|appliance-web)\b")
"""Words that name a feature which is missing: each use is entered too."""
SIGNALS_IN_CODE = re.compile(
    r"\bnot there yet\b|\b(?:is|are) to come\b|\b[Uu]ntil there is\b|\b[Oo]nce there is an?\b"
    r"|\bnot yet (?:enforced|supported|implemented|built|used)\b|\bnot implemented\b|\bTODO\b"
)
"""Narrower: docstrings say "None: not yet" of values, which is about a box."""


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences, headings, items and cells of a text, each on one line."""
    for block in re.split(r"\n\s*\n|\n(?=[#|*-] ?)|\|", text):
        for sentence in re.split(r"(?<=[.!?])\s+", block):
            yield " ".join(sentence.split())


def docstrings(module: Path) -> Iterator[str]:
    """Yield the docstrings of a module, those of attributes too, and descriptions of keys."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
            case ast.keyword(arg="description", value=ast.Constant(value=str(text))):
                yield text
            case ast.Call(func=ast.Name(id="Doc"), args=[ast.Constant(value=str(text)), *_]):
                yield text
            case _:
                pass


def signalled() -> list[tuple[str, str]]:
    """Return the sentences with a signal word, each with its file."""
    found = [
        (str(page.relative_to(ROOT)), sentence)
        for page in PAGES
        for sentence in sentences(page.read_text("utf-8"))
        if SIGNALS.search(sentence) or FEATURE_WORDS.search(sentence)
    ]
    found += [
        (str(module.relative_to(ROOT)), sentence)
        for module in sorted((ROOT / "appliance").rglob("*.py"))
        for text in docstrings(module)
        for sentence in sentences(text)
        if SIGNALS_IN_CODE.search(sentence) or FEATURE_WORDS.search(sentence)
    ]
    return found


def test_sentences_about_missing_features_are_listed() -> None:
    """A sentence that may call a feature missing is listed, and no list has other entries."""
    found, listed = signalled(), (*MISSING, *ABOUT_A_BOX)
    unlisted = [f"{file}: {s}" for file, s in found if not any(part in s for part in listed)]
    assert not unlisted, "\n".join(unlisted)
    assert [part for part in listed if not any(part in s for _, s in found)] == []


@pytest.mark.parametrize("part", MISSING)
def test_missing_features_are_missing(part: str) -> None:
    """No path of a feature exists that a sentence calls missing."""
    paths = [path for feature in MISSING[part] for path in FEATURES[feature]]
    assert [str(p) for path in paths for p in ROOT.glob(path)] == []
