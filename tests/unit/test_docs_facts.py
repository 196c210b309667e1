"""Figures and lists in the documentation are those of the code: units, users, paths, ports, limits."""

import re
from pathlib import Path

from appliance.settings.tables import GatewaySettings, Settings

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
FILES = (ROOT / "docs/reference/files-and-users.md").read_text("utf-8")
UNITS = (ROOT / "docs/reference/units.md").read_text("utf-8")
INSTALL = (ROOT / "scripts/install.sh").read_text("utf-8")
CODE = re.compile(r"`([^`]+)`")
EXAMPLE_PORTS = {
    443: "https",
    2586: "ntfy's server",
    4000: "another program of the reader's",
    8085: "the stand-in for a phone",
    18011: "the reader's end of a tunnel",
}
"""Ports that pages name and that are neither ours nor those of the example profiles."""


def shell_list(name: str) -> list[str]:
    """Return the words of an array of install.sh."""
    found = re.search(rf"^readonly {name}=\(([^)]*)\)", INSTALL, re.MULTILINE)
    assert found is not None
    return found[1].split()


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    table = re.search(r"(?:^\|.*\n)+", text.partition(f"# {heading}\n")[2], re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for line in table.group().splitlines()[2:]
    ]


def test_enabled_units_are_those_that_install_enables() -> None:
    """The last column of the table is what scripts/install.sh does."""
    enabled = set()
    for first, *_, last in rows(UNITS, "Static"):
        names = CODE.findall(first)
        if last in {"the socket", "yes; the service by its socket"}:
            names = [name for name in names if name.endswith(".socket")]
        elif last != "yes":
            assert last in {"no", ""}, last
            continue
        enabled |= set(names)
    assert enabled == set(shell_list("enabled_units"))


def test_users_and_groups_are_those_that_are_made() -> None:
    """The table has every user and group of sysusers.d; the sentence below it has those that may be there before."""
    conf = (ROOT / "units/appliance.sysusers.conf").read_text("utf-8")
    made = {(kind, name) for kind, name in re.findall(r"^([ug]) (\S+)", conf, re.MULTILINE)}
    kinds = {"user": "u", "group": "g"}
    listed = set()
    for first, *_ in rows(FILES, "Users and groups"):
        found = re.match(r"(user|group) `([^`]+)`", first)
        if found is not None:
            listed.add((kinds[found[1]], found[2]))
    before = {("g", name) for name in ("render", "video", "systemd-journal")}
    # A group of the same name comes with each user; the table lists one where members are added to it.
    assert made - before == listed - {("g", "appliance-backend")}
    assert re.search(
        r"`render`, `video` and `systemd-journal` are made where they are missing", FILES
    )


def test_paths_of_the_installation_are_those_of_install() -> None:
    """Every path that scripts/install.sh writes to is in the table."""
    variables = dict(re.findall(r"^readonly (\w+)=(\S+)$", INSTALL, re.MULTILINE))
    written = (
        "sysusers",
        "tmpfiles",
        "catalog",
        "bash_completion",
        "zsh_completion",
        "fish_completion",
        "man_pages",
        "unit_dir",
        "prefix",
    )
    table = "\n".join("|".join(row) for row in rows(FILES, "The installation"))
    for name in written:
        path = variables[name].replace("$share", variables["share"])
        assert path in table, name


def test_sockets_are_those_of_the_units() -> None:
    """Every socket below /run is in the table of what is there while the box runs."""
    listed = {word for row in rows(FILES, "While it runs") for word in CODE.findall(row[0])}
    for unit in sorted((ROOT / "units").glob("*.socket")):
        for path in re.findall(r"^ListenStream=(/run/\S+)", unit.read_text("utf-8"), re.MULTILINE):
            assert path in listed, unit.name


def test_ports_are_those_of_the_settings() -> None:
    """The table has the defaults, and every port that a page names is ours, an example profile's or listed here."""
    settings = Settings()
    ours = {settings.gateway.port, settings.status_port}
    assert {int(row[0]) for row in rows(FILES, "Ports") if row[0].isdigit()} == ours
    profiles = [path.read_text("utf-8") for path in (ROOT / "profiles").glob("*.toml")]
    ours |= {int(port) for text in profiles for port in re.findall(r"(?m)^port *= *(\d+)", text)}
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs/tutorial").glob("*.md"),
        *(ROOT / "docs/how-to").glob("*.md"),
    ]
    named = set()
    for page in pages:
        named |= {
            int(port)
            for port in re.findall(
                r"(?:127\.0\.0\.1|localhost|BOX|garage|attic):(\d+)", page.read_text("utf-8")
            )
        }
    assert named - ours <= set(EXAMPLE_PORTS)


def test_limits_in_the_readme_are_the_defaults() -> None:
    """A restart of the gateway cuts after its `stop`, an upgrade after its `drain`."""
    gateway = GatewaySettings()
    assert (gateway.stop, gateway.drain) == (10.0, 600.0)
    limits = " ".join(README.partition("## Limits")[2].split())
    assert "A restart cuts, with an error, requests that take longer than 10 s" in limits
    assert "an upgrade lets them finish for ten minutes" in limits


def test_example_profiles_are_counted() -> None:
    """The changelog tells how many example profiles are shipped."""
    count = len(list((ROOT / "profiles").glob("*.toml")))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"(\d+)\s+example\s+profiles\s+are\s+shipped", changelog) == [str(count)]


def test_the_readme_leaves_lists_to_the_reference() -> None:
    """A list of units or users stands in one place, where a test compares it."""
    assert not re.findall(r"`appliance-[\w-]+\.(?:service|socket)`", README)
    assert not re.search(r"\b(?:\w+ units are enabled|users? `appliance)", README)


def test_pictures_in_the_readme_are_those_that_the_page_check_makes() -> None:
    """Every picture is written by `make check-page`."""
    check = (ROOT / "tests/page_check/browsing.py").read_text("utf-8")
    names = re.findall(r"!\[[^\]]+\]\(docs/pictures/([\w-]+)\.png\)", README)
    assert names
    for name in names:
        assert (ROOT / f"docs/pictures/{name}.png").is_file()
        pattern = re.sub(r"(wide|phone)-(light|dark)$", "{width}-{scheme}", name)
        assert f"{pattern}.png" in check or f"{name}.png" in check, name
