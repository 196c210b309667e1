"""Pins hold: output and texts of the appliance are as they were pinned."""

import os
import re
from pathlib import Path

import pytest

from tests.pins.appliance_code import VERBS, width
from tests.pins.apply_output import BOXES, SHIPPED
from tests.pins.normalisation import told_by
from tests.pins.pin_files import FOLDER, differences, load, store, summary
from tests.pins.screens import HEADING, PLAIN
from tests.pins.subjects import AS_ROOT, SUBJECTS

_SHOWN_LINES = 60
MEASURED = {"baseline", "bench", "events", "history", "probe"}
"""Verbs whose figures come from the health agent or a model: tests/unit/cli has their screens."""
OF_FIXED_FILES = {"target"}
"""Verbs that write a file of root's whose place no setting moves: tests/unit/cli has their screens."""
OF_A_TERMINAL = {"completion", "top"}
"""Verbs that succeed in a shell's completion or on a terminal alone."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_everything_is_as_it_was_pinned(subject: str) -> None:
    """Not one byte is other than stored; ``python -m tests.pins --write`` renews the pins."""
    if subject == AS_ROOT and os.geteuid() != 0:
        pytest.skip("not root: that what root's verbs say has not changed is not shown")
    found = differences(subject, SUBJECTS[subject]())
    lines = [line for difference in found for line in difference.lines()]
    shown = [*lines[:_SHOWN_LINES], *summary(found)]
    assert not found, "\n".join(["python -m tests.pins shows all of this:", *shown])


def test_every_stored_pin_has_a_subject() -> None:
    """No pin outlives what makes it."""
    assert {p.name for p in FOLDER.iterdir()} == set(SUBJECTS)


def test_pins_name_no_module() -> None:
    """A module can be moved and named anew without one pin changing."""
    texts = [text for subject in SUBJECTS for text in load(subject).values()]
    assert not [text for text in texts if "-m appliance." in text or "site-packages" in text]


def test_there_are_enough_profiles() -> None:
    """Every shipped profile is pinned, and forty made ones."""
    pinned = {Path(file).parent.name + "/" + Path(file).stem for file in load("apply")}
    shipped = {f"shipped/{f.stem}" for f in SHIPPED.glob("*.toml")}
    made = {f"{f.parent.name}/{f.stem}" for f in BOXES.glob("*/*.toml")}
    assert len(made) >= 40
    assert shipped | made <= pinned


def test_there_are_enough_states() -> None:
    """The status is pinned for thirty states of a box at the least."""
    assert len(load("status")) >= 30


def test_every_screen_fits_its_terminal() -> None:
    """No line is wider than its screen but a word that cannot be broken, and none ends amid a word.

    The C locale has nothing but ASCII.
    """
    screens = load("screens")
    assert len([file for file in screens if file.startswith("status/")]) >= 12
    wide = []
    for file, text in screens.items():
        for section in text.split(HEADING)[1:]:
            heading, *lines = section.splitlines()
            columns = int(heading.split()[0])
            wide += [
                f"{file}, {heading}: {line}"
                for line in lines
                if not line.startswith("$ ")
                and (
                    (width(line) > columns and " " in line.strip())
                    or (PLAIN in heading and not line.isascii())
                )
            ]
    assert not wide


def test_every_verb_is_pinned_in_success_and_in_failure() -> None:
    """The transcripts have an exit status of 0 and another one for each verb but the measuring ones."""
    found: dict[str, set[bool]] = {}
    for text in (*load("cli").values(), *load(AS_ROOT).values()):
        for verb, status in re.findall(
            r"^\$ appliance (\S+).*\n(?:[ !].*\n)*= (\d+)$", text, re.MULTILINE
        ):
            found.setdefault(verb, set()).add(status == "0")
    fixed = VERBS - MEASURED - OF_FIXED_FILES - OF_A_TERMINAL
    assert {verb for verb, ends in found.items() if ends == {True, False}} >= fixed


def test_what_is_told_by_a_base_is_told_exactly() -> None:
    """Runs of common lines are left out only where the base tells which lines they are."""
    base = [*"abcdefgh", *"x}x}", *"klmnop"]
    text = [*"abcdefgh", "new", *"x}x}", *"klmnop"]
    told = told_by("\n".join(base), "\n".join(text)).split("\n")
    assert told == ["… as base: a … h", "new", "… as base: x … p"]
    ambiguous = [*"ab", "}", "c", "}", "d", "}"]
    assert told_by("\n".join(ambiguous), "\n".join(["0", *ambiguous])).split("\n") == [
        "0",
        "… as base: a … d",
        "}",
    ]
    assert told_by("abc", "abc\nabc") == "abc\nabc"


def test_the_shipped_profiles_cover_the_known_stacks() -> None:
    """The demo's two profiles and the six known stacks are shipped."""
    assert {f.stem for f in SHIPPED.glob("*.toml")} >= {
        "smol",
        "smol-long",
        "genesis",
        "aeon",
        "gemma-cpu",
        "gemma-1gpu",
        "gemma-2gpu",
        "coder4",
    }


def test_renewing_changes_the_files_that_differ(tmp_path: Path) -> None:
    """New, changed and gone texts are found, told in a summary, and stored."""
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "gone.txt").write_text("1\n2\n")
    (tmp_path / "s" / "same.txt").write_text("same\n")
    (tmp_path / "s" / "other.txt").write_text("a\nb\nc")
    made = {"same.txt": "same\n", "other.txt": "a\nB\nc", "new/one.txt": "x\n"}
    found = differences("s", made, tmp_path)
    assert list(summary(found)) == [
        "s/gone.txt  +0 -2 gone",
        "s/new/one.txt  +1 -0 new",
        "s/other.txt  +1 -1",
        "3 files differ, +2 -3 lines",
    ]
    store(found, tmp_path)
    assert load("s", tmp_path) == made
    assert not differences("s", made, tmp_path)
