"""Pins of one `appliance apply` after another, with a change of the box before each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import unified_diff
from hashlib import sha256
from typing import Final

from tests.pins.appliance_code import unit_of
from tests.pins.apply_output import MANIFEST, Box, new_box
from tests.pins.pin_files import file_name

_COMMAND: Final = """\
# what it is for
engine = "command"
port = {port}
gpus = []

[command]
argv = ["/bin/true", "--port", "{{port}}"]
"""
_MOST_LINES: Final = 16
"""Most lines of one file that are written out; of more, a digest."""
_A_UNIT: Final = f"units/{unit_of('a')}"
_Change = Callable[[Box], None]


def _write(path: str, text: str) -> _Change:
    def change(box: Box) -> None:
        file = box.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return change


def _add(path: str, text: str) -> _Change:
    def change(box: Box) -> None:
        file = box.root / path
        file.write_text(file.read_text() + text)

    return change


def _command(name: str, port: int, more: str = "") -> _Change:
    return _write(f"profiles/{name}.toml", _COMMAND.format(port=port) + more)


def _remove(path: str) -> _Change:
    return lambda box: (box.root / path).unlink()


def _both(one: _Change, other: _Change) -> _Change:
    def change(box: Box) -> None:
        one(box)
        other(box)

    return change


def _nothing(_box: Box) -> None:
    return


def _run_a(box: Box) -> None:
    box.manager.run("a")


_CHANGES: Final[Mapping[str, Sequence[tuple[str, _Change, str]]]] = {
    "profiles": [
        ("two profiles", _both(_command("a", 9000), _command("b", 9001)), ""),
        ("nothing", _nothing, ""),
        ("nothing", _nothing, "--json"),
        ("a has another port, to try", _command("a", 9009), "--dry-run"),
        ("a runs", _run_a, ""),
        ("a changes again", _command("a", 9010), "--json"),
        ("a rival of another kind", _command("c", 9002, "[deadlines]\nstop = 9\n"), ""),
        ("b is broken", _write("profiles/b.toml", 'engine = "vlm"\nprot = 1\n'), ""),
        ("b is still broken", _nothing, "--json"),
        ("b goes", _remove("profiles/b.toml"), ""),
        ("a goes while it runs", _remove("profiles/a.toml"), ""),
    ],
    "hand edits": [
        ("a profile", _command("a", 9000), ""),
        ("a key of its unit", _add(_A_UNIT, "Nice=5\n"), ""),
        ("nothing", _nothing, "--json"),
        ("nothing", _nothing, "--adopt-changes --dry-run"),
        ("nothing", _nothing, "--adopt-changes"),
        ("a key that no profile may have", _add(_A_UNIT, "User=root\n"), "--adopt-changes"),
        ("nothing", _nothing, "--discard --dry-run"),
        ("nothing", _nothing, "--discard"),
        ("a drop-in", _write(f"{_A_UNIT}.d/x.conf", "[Service]\nNice=7\n"), ""),
        ("nothing", _nothing, "--adopt-changes"),
        ("all", _write("units/appliance-backend-.service.d/x.conf", "[Service]\nNice=1\n"), ""),
        ("a unit of nobody", _write("units/appliance-backend-x.service", "[Unit]\n"), ""),
        ("nothing", _nothing, "--discard"),
    ],
    "damage": [
        ("a profile", _command("a", 9000), ""),
        ("the manifest", _write(MANIFEST, "x"), ""),
        ("manifest and copy", _both(_write(MANIFEST, "x"), _write(f"{MANIFEST}.copy", "")), ""),
        ("the gateway's file", _write("applied/gateway.json", "[]"), ""),
        ("the unit", _remove(_A_UNIT), ""),
        ("the rule", _write("rules/50-appliance.rules", "//\n"), ""),
        ("the rule", _nothing, "--discard"),
        ("no profile", _remove("profiles/a.toml"), ""),
    ],
}


def make() -> dict[str, str]:
    """Make the pin of every sequence of changes, by file.

    For each change: the report, the requests to systemd, and the lines of files that differ after it.
    """
    return dict(_pins())


def _pins() -> Iterator[tuple[str, str]]:
    for name, steps in _CHANGES.items():
        text = ""
        with new_box() as box:
            before = box.files()
            for what, change, words in steps:
                change(box)
                text += _step(box, f"{what}: appliance apply {words}".rstrip(), words, before)
                before = box.files()
        yield file_name(name), text


def _step(box: Box, heading: str, words: str, before: Mapping[str, str]) -> str:
    box.manager.calls.clear()
    done = box.apply(*words.split())
    told = "".join(f"told: {call}\n" for call in box.manager.calls)
    after = box.files()
    copies = {f for f in after if f.replace(".copy ", " ") != f or f.startswith("applied/units/")}
    written = "".join(
        _written(file, before.get(file), after.get(file))
        for file in sorted({*before, *after} - copies)
        if before.get(file) != after.get(file)
    )
    wrong = "".join(f"unlike its copy: {f}\n" for f in sorted(copies) if not _is_copied(f, after))
    return (
        f"======== {heading}\nexit status {done.status}\n{done.out}{done.err}{told}{written}{wrong}"
    )


def _is_copied(copy: str, files: Mapping[str, str]) -> bool:
    """Tell whether a copy equals its original."""
    name = copy.replace(".copy ", " ").removeprefix("applied/units/")
    return files[copy] in {files.get(p) for p in (name, f"units/{name}", f"rules/{name}")}


def _written(file: str, before: str | None, after: str | None) -> str:
    """Return the lines that a file lost and gained; of a new file, or of many lines, its digest."""
    if after is None:
        return f"--- {file}\n"
    diff = unified_diff((before or "").split("\n"), after.split("\n"), n=0, lineterm="")
    lines = [line for line in diff if not line.startswith(("---", "+++", "@@"))]
    if before is None or len(lines) > _MOST_LINES:
        return f"+++ {file}, sha256 {sha256(after.encode()).hexdigest()[:16]}\n"
    return f"+++ {file}\n" + "".join(f"{line}\n" for line in lines)
