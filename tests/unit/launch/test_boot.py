"""The boot oneshot on hostile files: it starts what is committed, holds, or does nothing."""

import os
import time
from pathlib import Path

import pytest

from tests.programs import program, run

HOLD = "start --no-block appliance-hold.service"
FAR_FUTURE = str(time.time() + 1e6)


class Machine:
    """A state directory, installed units and a systemctl that writes down its arguments."""

    def __init__(self, root: Path) -> None:
        self.state = root / "state"
        self.units = root / "units"
        self._log = root / "log"
        self._systemctl = root / "systemctl"
        for folder in (self.state, self.units):
            folder.mkdir()
        for name in ("a", "b"):
            (self.units / f"appliance-backend-{name}.service").touch()
        self._systemctl.write_text(f'#!/bin/sh\necho "$@" >> {self._log}\nexit 3\n')
        self._systemctl.chmod(0o755)

    def boot(self) -> tuple[int, str]:
        """Exit status, and every call of systemctl."""
        folders = ("--state-dir", self.state, "--unit-dir", self.units)
        result = run(program("boot", *folders, "--systemctl", self._systemctl))
        assert "Traceback" not in result.stderr
        return result.returncode, self._log.read_text() if self._log.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def started(*names: str) -> str:
    return f"start --no-block {' '.join(f'appliance-backend-{n}.service' for n in names)}\n"


@pytest.mark.parametrize(
    ("content", "calls"),
    [
        (b"a\n", started("a")),
        (b"b\na\n", started("b", "a")),
        (b"a", started("a")),
        (b" a \r\n\na\n", started("a")),
        (b"", ""),
        (b"\n\n", ""),
        (b"c\n", ""),
        (b"c\nb\n", started("b")),
        (b"../a\nb\n", started("b")),
        (b"a.service\nb\n", started("b")),
        (b"-a\nA\na b\n*\n%i\n$(reboot)\n--force\nb\n", started("b")),
        (b"b\x00\nb\n", started("b")),
        (b"\xff\xfe\n", ""),
        (b"a\n" * 40000, ""),
        (os.urandom(70000), ""),
        (b"x" * 5000 + b"\nb\n", started("b")),
    ],
)
def test_valid_installed_names_are_started_in_one_call(
    machine: Machine, content: bytes, calls: str
) -> None:
    """Names that are valid and installed start together; everything else is left out."""
    (machine.state / "active").write_bytes(content)
    assert machine.boot() == (3 if calls else 0, calls)


def test_without_files_nothing_starts(machine: Machine) -> None:
    """A box on which nothing was committed boots in peace."""
    assert machine.boot() == (0, "")
    machine.state.rmdir()
    assert machine.boot() == (0, "")


def test_a_masked_unit_is_not_started(machine: Machine) -> None:
    """A unit that is a link to nothing usable does not count as installed."""
    unit = machine.units / "appliance-backend-a.service"
    unit.unlink()
    unit.symlink_to("/dev/null")
    (machine.state / "active").write_text("a\n")
    assert machine.boot() == (0, "")


@pytest.mark.parametrize(
    ("content", "is_held"),
    [
        ("forever\n", True),
        pytest.param(FAR_FUTURE, True, id="far-future"),
        ("inf", True),
        ("nan", True),
        ("rubbish", True),
        ("1\nforever\n", False),
        ("1000000000", False),
        ("1000000000.5\n", False),
        ("-5", False),
        ("", False),
        ("\n", False),
    ],
)
def test_a_hold_keeps_the_models_down_until_it_ends(
    machine: Machine, content: str, *, is_held: bool
) -> None:
    """A hold without an end or with a later one wins over the committed names."""
    (machine.state / "active").write_text("a\n")
    (machine.state / "hold").write_text(content)
    assert machine.boot()[1] == (f"{HOLD}\n" if is_held else started("a"))


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "socket-like device", "huge"])
@pytest.mark.parametrize(("file", "calls"), [("active", ""), ("hold", f"{HOLD}\n")])
def test_what_is_no_plain_file_neither_hangs_nor_starts_anything(
    machine: Machine, kind: str, file: str, calls: str
) -> None:
    """A damaged list starts nothing; a damaged hold still holds."""
    (machine.state / "active").write_text("a\n")
    path = machine.state / file
    path.unlink(missing_ok=True)
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            target = machine.state / "target"
            target.write_text("a\n")
            path.symlink_to(target)
        case "folder":
            path.mkdir()
        case "huge":
            with path.open("w") as sparse:
                sparse.truncate(1 << 40)
        case _:
            path.symlink_to("/dev/zero")
    assert machine.boot()[1] == calls


def test_an_unknown_argument_is_a_usage_error() -> None:
    """A wrong unit file is reported, not acted upon."""
    assert run(program("boot", "--states", "x")).returncode == 64
