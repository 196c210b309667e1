"""`profile`, `config`, `apply` and `edit`: what works on files, as root or not."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox, Ended
from tests.fakes.control_server import FakeSupervisor
from tests.fakes.profile_texts import MINIMAL

GENESIS = """\
description = "a test"   # this comment stays
engine = "command"
served = ["genesis"]
port = 8022

[command]
argv = ["/usr/bin/true", "--port", "{port}"]
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may edit and apply")


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    box = CliBox(tmp_path)
    box.install()
    (tmp_path / "profiles" / "genesis.toml").write_text(GENESIS)
    (tmp_path / "profiles" / "aeon.toml").write_text(GENESIS.replace("8022", "8023"))
    (tmp_path / "rules").mkdir()
    return box


def edit(box: CliBox, editor: str, *arguments: str) -> Ended:
    return box.run(
        "edit",
        "genesis",
        *arguments,
        EDITOR=editor,
        APPLIANCE_POLKIT_RULE=str(box.root / "rules" / "appliance.rules"),
        TMPDIR=str(box.root),
    )


def kept_copies(box: CliBox) -> list[Path]:
    return sorted(box.root.glob("appliance-edit-*/genesis.toml"))


def test_validate_checks_every_profile(box: CliBox) -> None:
    """Without arguments all installed profiles are checked, and a bad one takes none down."""
    (box.root / "profiles" / "bad.toml").write_text(GENESIS.replace("served", "sevred"))
    ended = box.run("profile", "validate")
    assert ended.status == 78
    assert ended.out.splitlines() == ["aeon.toml: ok", "genesis.toml: ok"]
    assert ended.err.startswith('bad.toml:3: unknown key "sevred"')
    as_json = json.loads(box.run("profile", "validate", "--json").out)
    assert [entry["ok"] for entry in as_json] == [True, False, True]


def test_validate_checks_a_file_anywhere(box: CliBox, tmp_path: Path) -> None:
    """A file is checked before it is put in place."""
    file = tmp_path / "new.toml"
    file.write_text(GENESIS)
    good = box.run("profile", "validate", str(file))
    assert (good.status, good.out) == (0, f"{file}: ok\n")
    file.write_text("port = ")
    assert box.run("profile", "validate", str(file)).status == 78


def test_render_prints_the_unit(box: CliBox) -> None:
    """The unit of a profile can be read before anything is installed."""
    ended = box.run("profile", "render", "genesis")
    assert ended.status == 0
    assert "Conflicts=appliance-backend-aeon.service appliance-hold.service" in ended.out
    units = json.loads(box.run("profile", "render", "--json").out)
    assert list(units) == ["appliance-backend-aeon.service", "appliance-backend-genesis.service"]
    assert not list((box.root / "units").iterdir())


def test_render_of_an_unknown_name(box: CliBox) -> None:
    """A wrong name is told with the likely one."""
    ended = box.run("profile", "render", "genisis")
    assert (ended.status, ended.err) == (4, 'no profile "genisis". Did you mean "genesis"?\n')


def test_config_shows_what_is_in_force(box: CliBox) -> None:
    """Output of `config show` is a settings file with the same meaning."""
    shown = box.run("config", "show")
    table = tomllib.loads(shown.out)
    assert table["profiles_dir"] == str(box.root / "profiles")
    assert table["memory"] == {"sample_every_s": 5.0}
    (box.root / "appliance.toml").write_text(shown.out)
    assert box.run("config", "validate").out == f"{box.root / 'appliance.toml'}: ok\n"
    assert box.run("config", "show").out == shown.out


def test_config_with_a_mistake(box: CliBox) -> None:
    """A wrong setting exits 78 and names file, line and the likely key."""
    (box.root / "appliance.toml").write_text('\nlog_levle = "debug"\n')
    ended = box.run("config", "validate")
    assert ended.status == 78
    assert "appliance.toml:2" in ended.err
    assert "log_level" in ended.err
    assert box.run("config", "path").out == f"{box.root / 'appliance.toml'}\n"


def test_quick_verbs_tell_a_broken_settings_file(box: CliBox) -> None:
    """A settings file that is no TOML is not passed over in silence."""
    (box.root / "appliance.toml").write_text("control_socket =\n")
    ended = box.run("status")
    assert ended.status == 78
    assert "appliance config validate" in ended.err


def test_the_settings_file_moves_the_control_socket(box: CliBox) -> None:
    """Quick verbs obey the settings file as the daemon does."""
    other = box.root / "other.sock"
    (box.root / "appliance.toml").write_text(f'control_socket = "{other}"\n')
    with FakeSupervisor(other, {"cancel": [{"event": "result", "exit": 0, "message": "done"}]}):
        assert box.run("cancel", APPLIANCE_CONTROL_SOCKET="").status == 0


def test_validate_warns_of_what_is_missing(box: CliBox) -> None:
    """A valid profile whose program is not installed is valid, and said not to start."""
    path = box.root / "profiles" / "genesis.toml"
    path.write_text(GENESIS.replace("/usr/bin/true", "/opt/none/engine"))
    sentence = "genesis: engine not found: /opt/none/engine: install it or correct genesis.toml"
    for target in ("genesis", str(path)):
        ended = box.run("profile", "validate", target)
        assert (ended.status, ended.err) == (0, f"{sentence}\n")
        assert ended.out.endswith("genesis.toml: ok\n")
    (entry,) = json.loads(box.run("profile", "validate", "genesis", "--json").out)
    assert (entry["ok"], entry["warnings"]) == (True, [sentence])


@needs_root
def test_edit_applies_what_was_edited(box: CliBox) -> None:
    """An edit is checked, shown as a difference, put in place and applied."""
    ended = edit(box, "sed -i s/a.test/another/", "--yes")
    assert (ended.status, ended.err) == (0, "")
    assert '-description = "a test"   # this comment stays' in ended.out
    assert '+description = "another"   # this comment stays' in ended.out
    profile = (box.root / "profiles" / "genesis.toml").read_text()
    assert profile == GENESIS.replace("a test", "another")
    assert "another" in (box.root / "units" / "appliance-backend-genesis.service").read_text()
    assert kept_copies(box) == []


@needs_root
def test_edit_takes_keys_of_earlier_releases_out(box: CliBox) -> None:
    """The key is named with the reason, also where the editor changes nothing; comments stay."""
    path = box.root / "profiles" / "genesis.toml"
    table = "\n[llama-server]   # old\nlegacy_options = true\nbatch = 512\n"
    path.write_text(MINIMAL["llama-server"] + table)
    ended = edit(box, "true", "--yes")
    assert ended.status == 0
    assert "[llama-server] legacy_options is taken out: the program itself is asked" in ended.out
    assert path.read_text() == (MINIMAL["llama-server"] + table).replace(
        "legacy_options = true\n", ""
    )


@needs_root
def test_edit_without_a_change(box: CliBox) -> None:
    """An edit that changes nothing applies nothing."""
    ended = edit(box, "true")
    assert (ended.status, ended.out) == (0, "nothing was changed\n")
    assert not list((box.root / "units").iterdir())


@needs_root
@pytest.mark.parametrize(
    ("editor", "status", "sentence"),
    [
        ("sed -i s/served/sevred/", 78, 'genesis.toml:3: unknown key "sevred"'),
        ("false", 1, "false ended with status 1"),
        (
            "sed -i s/a.test/another/",
            1,
            "there is no terminal to ask on; --yes applies without asking",
        ),
    ],
)
def test_edit_keeps_what_cannot_be_applied(
    box: CliBox, editor: str, status: int, sentence: str
) -> None:
    """A mistake changes nothing, and the work is not lost."""
    ended = edit(box, editor)
    assert ended.status == status
    assert sentence in ended.err
    (copy,) = kept_copies(box)
    assert f"your text is kept in {copy}" in ended.err
    assert (box.root / "profiles" / "genesis.toml").read_text() == GENESIS


@needs_root
def test_edit_sees_a_collision_with_another_profile(box: CliBox) -> None:
    """The copy is checked together with the other profiles."""
    shared = GENESIS.replace("port = 8022", "port = 8023\nshared = true")
    (box.root / "profiles" / "aeon.toml").write_text(shared)
    ended = edit(box, "sed -i s/8022/8023/")
    assert ended.status == 78
    assert "8023" in ended.err


@needs_root
def test_edit_of_a_profile_that_changed_meanwhile(box: CliBox) -> None:
    """Two operators at once: the second is told, and overwrites nothing."""
    path = box.root / "profiles" / "genesis.toml"
    box.program("clumsy", f'echo "# mine" >> "$1"; echo "# theirs" >> {path}')
    ended = edit(box, "clumsy", "--yes")
    assert ended.status == 1
    assert "was changed by another program meanwhile" in ended.err
    assert path.read_text() == f"{GENESIS}# theirs\n"


@needs_root
def test_edit_of_an_unknown_profile(box: CliBox) -> None:
    """A wrong name opens no editor."""
    ended = box.run("edit", "genisis", EDITOR="false")
    assert (ended.status, ended.err) == (4, 'no profile "genisis". Did you mean "genesis"?\n')


@needs_root
def test_apply_dry_run_changes_nothing(box: CliBox) -> None:
    """`apply --dry-run` says what it would write."""
    rule = str(box.root / "rules" / "appliance.rules")
    ended = box.run("apply", "--dry-run", APPLIANCE_POLKIT_RULE=rule)
    assert ended.status == 0
    assert "would create appliance-backend-genesis.service" in ended.out
    assert not list((box.root / "units").iterdir())
