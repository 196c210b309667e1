"""The documentation leads somewhere, and names what exists."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from appliance.cli.grammar import VERBS
from appliance.model.operations import Kind, Outcome, Phase, PhaseState
from appliance.model.status import (
    EngineRow,
    GatewayRow,
    HoldRow,
    Percentiles,
    ProfileRow,
    StatusDocument,
    SupervisorRow,
    TrafficRow,
    Verdict,
)
from appliance.settings.loader import SETTINGS_FILE
from appliance.wire.control import Exit
from appliance.wire.control_events import AcceptedEvent, EndedEvent, PhaseEvent
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import EXIT_STATUSES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
GENERATED = {REFERENCE / f"{name}.md" for name in ("cli", "profiles", "settings")}
WRITTEN = [page for page in PAGES if page not in GENERATED]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"\bappliance ([a-z]+)\b([^`|\n:;,()]*)")
CODE = re.compile(r"`([^`]+)`")
CLOSED_PIPE = 141
"""Status that `Exit` lacks: that of any program whose reader has closed the pipe."""

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """The files and anchors that a page links to."""
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def anchors(page: Path) -> set[str]:
    """Return the anchors that links give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def test_what_pages_link_to_is_installed() -> None:
    """The units name an installed README as their documentation: its links work there, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    carried = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    linked = {target.relative_to(ROOT).parts[0] for page in PAGES for target, _ in links(page)}
    assert linked <= set(carried)


@by_name
def test_every_link_leads_somewhere(page: Path) -> None:
    """A relative link names a file that is there, and a heading in it."""
    for target, anchor in links(page):
        assert target.exists(), target
        assert not anchor or anchor in anchors(target), f"{target}#{anchor}"


def test_every_page_can_be_reached() -> None:
    """From the README one gets to every page by links."""
    reached, new = set[Path](), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {t for page in new for t, _ in links(page) if t.suffix == ".md"} - reached
    assert set(PAGES) <= reached


def test_index_lists_every_page() -> None:
    """The index links to every page below docs."""
    index = DOCS / "index.md"
    listed = {target for target, _ in links(index)}
    assert {*DOCS.rglob("*.md")} - listed == {index}


def code(text: str) -> str:
    """Return everything in a page that is written as code."""
    return "\n".join([*FENCE.findall(text), *CODE.findall(FENCE.sub("", text))])


@pytest.mark.parametrize("page", WRITTEN, ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    """A command that a page shows has its verb and its options."""
    sections = (REFERENCE / "cli.md").read_text("utf-8").split("\n## ")
    options = {s.partition("\n")[0]: s for s in [*sections, "ls\n"]}
    verbs = {name for verb in VERBS for name in (verb.name, *verb.aliases)}
    for verb, rest in COMMAND.findall(code(page.read_text("utf-8"))):
        assert verb in verbs, f"appliance {verb}"
        for option in re.findall(r"(?<!\S)--[a-z-]+", rest):
            assert option in f"{options[verb]} --json --socket --help", f"{verb} {option}"


def test_settings_exist() -> None:
    """Settings that pages name are settings."""
    named = re.compile(r"settings? `(\w+)`|`(\w+)` of the\s+settings")
    files = (REFERENCE / "files-and-users.md").read_text("utf-8")
    found = {row.split("|")[-2].strip(" `") for row in files.splitlines() if row.count("|") == 5}
    for page in WRITTEN:
        found |= {name for names in named.findall(page.read_text("utf-8")) for name in names}
    found -= {"", "Setting", "---"}
    assert found
    assert found <= set(SETTINGS_FILE.model_fields)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = (REFERENCE / page).read_text("utf-8").partition(f"# {heading}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.group().splitlines()[2:]
    ]


def first_words(page: str, heading: str) -> set[str]:
    """Return everything in code in the first column of a table."""
    return {word for row in rows(page, heading) for word in CODE.findall(row[0])}


def test_exit_codes_are_all_there() -> None:
    """The table has every exit status of the command, and no other."""
    listed = {int(row[0]) for row in rows("exit-codes.md", "appliance")}
    assert listed == {*(v for k, v in vars(Exit).items() if k.isupper()), CLOSED_PIPE}


def test_protocol_is_all_there() -> None:
    """The tables have every verb, every word, and every key of an event."""
    assert first_words("control-protocol.md", "Verbs") == set(CONTROL.verbs)
    text = (REFERENCE / "control-protocol.md").read_text("utf-8")
    words = {word for line in text.splitlines() if line[:1] == "|" for word in CODE.findall(line)}
    assert {*Kind, *Phase, *PhaseState, *Outcome, *EXIT_STATUSES} <= words
    for event in (AcceptedEvent, PhaseEvent, EndedEvent):
        assert set(get_type_hints(event)) <= words, event


def test_status_document_is_all_there() -> None:
    """The tables have every key of the document, and no other."""
    assert first_words("status-document.md", "Status document") == set(
        StatusDocument.__annotations__
    )
    assert first_words("status-document.md", "A profile") == set(ProfileRow.__annotations__)
    assert first_words("status-document.md", "Gateway") == set(GatewayRow.__annotations__)
    assert first_words("status-document.md", "Traffic") == set(TrafficRow.__annotations__)
    inner = {*EngineRow.__annotations__, *Percentiles.__annotations__}
    inner |= {*SupervisorRow.__annotations__, *HoldRow.__annotations__, *Verdict.__annotations__}
    text = (REFERENCE / "status-document.md").read_text("utf-8")
    assert inner <= set(CODE.findall(text))


def test_static_units_are_all_there() -> None:
    """The table has every unit in units/, and no other."""
    shipped = {p.name for p in (ROOT / "units").iterdir() if p.suffix not in {".conf", ".catalog"}}
    assert first_words("units.md", "Static") == shipped


def test_modules_that_hide_a_dependency_exist() -> None:
    """Each module in the table of dependencies is in the tree: `adapters/x.py`, or a package."""
    text = (DOCS / "dependencies.md").read_text().partition("## To work on it")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    named = [
        name for row in rows for name in re.findall(r"`([a-z_/]+(?:\.py)?)`", row) if "/" in name
    ]
    assert named
    assert [name for name in named if not (ROOT / "appliance" / name).exists()] == []
