"""Pages and docstrings call no feature missing.

A sentence with a signal word is about the state of a box, and listed in `ABOUT_A_BOX`: none is about a
feature that this tree lacks. Decisions are left out: they keep what was true when they were taken.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = {
    ROOT / "docs/reference" / f"{name}.md"
    for name in ("cli", "json-output", "profiles", "settings", "status-api")
}
DECISIONS = set((ROOT / "docs/decisions").glob("*.md"))
WRITTEN = {ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")}
PAGES = sorted(WRITTEN - GENERATED - DECISIONS)

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
        if SIGNALS.search(sentence)
    ]
    found += [
        (str(module.relative_to(ROOT)), sentence)
        for module in sorted((ROOT / "appliance").rglob("*.py"))
        for text in docstrings(module)
        for sentence in sentences(text)
        if SIGNALS_IN_CODE.search(sentence)
    ]
    return found


def test_sentences_about_missing_features_are_listed() -> None:
    """A sentence that may call a feature missing is listed, and no list has other entries."""
    found = signalled()
    unlisted = [f"{file}: {s}" for file, s in found if not any(part in s for part in ABOUT_A_BOX)]
    assert not unlisted, "\n".join(unlisted)
    assert [part for part in ABOUT_A_BOX if not any(part in s for _, s in found)] == []
