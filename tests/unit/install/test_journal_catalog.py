"""Explanations in the journal: complete, true to the tree, and accepted by journalctl."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.install.journal_catalog import EXPLANATIONS, FIELD_MEANINGS, GENERATED
from appliance.model.journal_events import JournalEvent, JournalField

ROOT = Path(__file__).parents[3]
needs_journalctl = pytest.mark.skipif(
    shutil.which("journalctl") is None,
    reason="no journalctl here: that it reads the catalog is not shown",
)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_files_are_current(name: str) -> None:
    """Catalog and page are what the table says now."""
    assert (ROOT / name).read_text("utf-8") == GENERATED[name](), (
        "run: python -m appliance.install.journal_catalog"
    )


def test_every_event_and_field_is_explained() -> None:
    """No event is without an explanation, and no two share an id."""
    assert list(EXPLANATIONS) == list(JournalEvent)
    assert list(FIELD_MEANINGS) == list(JournalField)
    assert all(re.fullmatch("[0-9a-f]{32}", event) for event in JournalEvent)


@pytest.mark.parametrize("event", JournalEvent, ids=lambda event: event.name)
def test_an_explanation_names_fields_and_pages_that_exist(event: JournalEvent) -> None:
    """A field in a text is one of ours, and the page and its anchor are there."""
    text = EXPLANATIONS[event]
    for name in re.findall("@([^@ ]+)@", f"{text.subject}{text.meaning}{text.action}"):
        assert name in {field.value for field in JournalField}
    file, _, anchor = text.page.partition("#")
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / file).read_text(), re.MULTILINE)
    assert not anchor or anchor in {h.lower().replace(" ", "-") for h in headings}


@needs_journalctl
def test_journalctl_reads_the_whole_catalog(tmp_path: Path) -> None:
    """The program journalctl compiles the file, and finds each event in it with its texts."""
    folder = tmp_path / "usr/local/lib/systemd/catalog"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "units/appliance.catalog", folder)
    call = ("journalctl", f"--root={tmp_path}", "--no-pager")
    done = subprocess.run([*call, "--update-catalog"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    shown = subprocess.run(
        [*call, "--dump-catalog", *JournalEvent], capture_output=True, text=True, check=True
    ).stdout
    for event, text in EXPLANATIONS.items():
        assert f"-- {event}\n" in shown
        assert f"Subject: {text.subject}\n" in shown
