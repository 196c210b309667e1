"""Stored pins: text files below ``stored``, one a subject's case."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Stored file and the different text that was made now."""

    file: str
    before: str | None
    """None: not stored yet."""
    after: str | None
    """None: not made any more."""

    def lines(self) -> list[str]:
        """Return a unified diff without context lines."""
        before, after = (self.before or "").splitlines(), (self.after or "").splitlines()
        diff = list(difflib.unified_diff(before, after, self.file, self.file, n=0, lineterm=""))
        # Texts that differ in line ends alone have no diff.
        return diff or [f"--- {self.file}: {self.before!r:.60} is now {self.after!r:.60}"]

    def counts(self) -> tuple[int, int]:
        """Return the numbers of added and removed lines."""
        body = self.lines()[2:]
        return (
            sum(line.startswith("+") for line in body),
            sum(line.startswith("-") for line in body),
        )


def file_name(name: str) -> str:
    """Return the file of a case, such as ``hold-over.txt`` for "hold over"."""
    return f"{name.replace(',', '').replace(' ', '-')}.txt"


def load(subject: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the stored texts of `subject` by path below its folder."""
    root = folder / subject
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in sorted(root.rglob("*.txt"))
    }


def differences(subject: str, made: Mapping[str, str], folder: Path = FOLDER) -> list[Difference]:
    """Return the differences between the stored texts and those `made` now, sorted by file."""
    stored = load(subject, folder)
    return [
        Difference(file=f"{subject}/{file}", before=stored.get(file), after=made.get(file))
        for file in sorted({*stored, *made})
        if stored.get(file) != made.get(file)
    ]


def store(found: list[Difference], folder: Path = FOLDER) -> None:
    """Write the new texts of all files that differ."""
    for difference in found:
        path = folder / difference.file
        if difference.after is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(difference.after, encoding="utf-8")


def summary(found: list[Difference]) -> Iterator[str]:
    """Yield a line for each file that differs, with its numbers of lines, and one for all."""
    added = removed = 0
    for difference in found:
        more, fewer = difference.counts()
        added, removed = added + more, removed + fewer
        what = "new" if difference.before is None else "gone" if difference.after is None else ""
        yield f"{difference.file}  +{more} -{fewer} {what}".rstrip()
    yield f"{len(found)} files differ, +{added} -{removed} lines"
