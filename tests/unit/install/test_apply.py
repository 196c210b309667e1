"""`appliance apply`: what it writes, what it leaves alone, and what it says."""

import fcntl
import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs.apply import apply_profiles
from appliance.install.apply import ApplyOptions, run_apply
from appliance.install.profile_specs import layout_of, load_specs
from appliance.model.names import build_unit_of, unit_of
from appliance.settings.tables import GatewaySettings, Settings, WebSettings
from appliance.switch.units.apply_plan import Action, Installed, plan_apply
from appliance.switch.units.daemon_drop_ins import RULE_FILE, SERVICE_DROP_IN, WEB_DROP_IN
from appliance.system.applied.manifest import GATEWAY_FILE, MANIFEST, copy_of, read_manifest
from appliance.wire.control import Exit
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.systemctl import FakeSystemctl
from tests.fakes.unit_specs import made

PROFILE = """\
# what it is for
engine = "command"
port = {port}
gpus = []
served = ["m"]

[command]
argv = ["/bin/true", "--port", "{{port}}"]
"""

LLAMA = """\
engine = "llama-server"
binary = "/bin/true"
model = "/m.gguf"
port = 9000
gpus = []
served = ["m"]
"""


class Box:
    """A machine's directories, and one apply after another on them."""

    def __init__(self, root: Path) -> None:
        self.settings = Settings(
            profiles_dir=root / "profiles",
            unit_dir=root / "units",
            polkit_rule=root / "rules.d" / "50-appliance.rules",
            applied_dir=root / "applied",
            state_dir=root / "state",
        )
        self.manager = FakeSystemctl()
        self.out = self.err = ""
        for directory in (self.settings.profiles_dir, self.settings.unit_dir):
            directory.mkdir()

    def profile(self, name: str, *, port: int = 9000, more: str = "") -> Path:
        """Write a profile."""
        path = self.settings.profiles_dir / f"{name}.toml"
        path.write_text(PROFILE.format(port=port) + more)
        return path

    def unit(self, name: str) -> Path:
        """Return where the unit of a profile is installed."""
        return self.settings.unit_dir / unit_of(name)

    def apply(
        self,
        *,
        dry_run: bool = False,
        adopt: bool = False,
        discard: bool = False,
        as_json: bool = False,
        euid: int = 0,
    ) -> int:
        """One apply; its texts are in `out` and `err`."""
        self.manager.calls.clear()
        out, err = io.StringIO(), io.StringIO()
        options = ApplyOptions(dry_run=dry_run, adopt=adopt, discard=discard)
        status = apply_profiles(
            self.settings,
            options,
            Streams(out=Terminal(out), err=Terminal(err)),
            as_json=as_json,
            manager=self.manager,
            euid=euid,
        )
        self.out, self.err = out.getvalue(), err.getvalue()
        return status

    def snapshot(self) -> dict[str, tuple[int, str]]:
        """Every file but the lock: its inode and its text."""
        root = self.settings.unit_dir.parent
        files = (p for p in root.rglob("*") if p.is_file() and p.name != "lock")
        return {str(p.relative_to(root)): (p.stat().st_ino, p.read_text()) for p in files}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """An empty machine."""
    return Box(tmp_path)


def test_the_first_apply_installs_everything(box: Box) -> None:
    """Units, rule, copies and manifest; one reload; supervisor and gateway (whose state is elsewhere) are told."""
    box.profile("a")
    box.profile("b")
    assert box.apply() == Exit.OK
    assert box.manager.calls == ["daemon-reload", "reload supervisor", "reload gateway"]
    assert sorted(p.name for p in box.settings.unit_dir.iterdir()) == [unit_of("a"), unit_of("b")]
    catalogue = read_manifest(box.settings.applied_dir)
    assert {n: a.conflicts for n, a in catalogue.items()} == {"a": ("b",), "b": ("a",)}
    assert unit_of("a") in box.settings.polkit_rule.read_text()
    copies = {p.name for p in (box.settings.applied_dir / "units").iterdir()}
    assert copies == {unit_of("a"), unit_of("b"), "50-appliance.rules"}
    assert box.unit("a").stat().st_mode & 0o777 == 0o644


def test_the_use_case_returns_a_report_and_prints_nothing(
    box: Box, capfd: pytest.CaptureFixture[str]
) -> None:
    """The outcome of an apply is in its report; only the command writes to its streams."""
    box.profile("a")
    report = run_apply(box.settings, ApplyOptions(), manager=box.manager, euid=0)
    assert list(report.plan.catalogue) == ["a"]
    assert report.reloaded
    assert capfd.readouterr() == ("", "")


def test_a_second_apply_touches_nothing(box: Box) -> None:
    """Not one file is written again, and systemd is left alone."""
    box.profile("a")
    box.apply()
    before = box.snapshot()
    assert box.apply() == Exit.OK
    assert box.snapshot() == before
    assert box.manager.calls == []
    assert "nothing to change" in box.out


def test_only_what_changed_is_written(box: Box) -> None:
    """A profile that changed alone has its unit replaced; the others keep their inode."""
    box.profile("a")
    box.profile("b", port=9001)
    box.apply()
    before = box.snapshot()
    box.profile("b", port=9002)
    assert box.apply() == Exit.OK
    after = box.snapshot()
    written = {name for name in after if after[name] != before[name]}
    assert written == {
        "profiles/b.toml",
        f"units/{unit_of('b')}",
        f"applied/units/{unit_of('b')}",
        f"applied/{MANIFEST}",
        f"applied/{MANIFEST}.copy",
    }
    assert box.manager.calls == ["daemon-reload", "reload supervisor"]


def test_a_dry_run_says_the_same_and_changes_nothing(box: Box) -> None:
    """The plan is printed, no file is written, and nobody is told."""
    box.profile("a")
    before = box.snapshot()
    assert box.apply(dry_run=True) == Exit.OK
    assert f"would create {unit_of('a')}" in box.out
    assert box.snapshot() == before
    assert box.manager.calls == []


def test_a_running_model_is_not_restarted(box: Box) -> None:
    """The unit of a running model is updated, and the report says how to put that in force."""
    box.profile("a")
    box.apply()
    box.manager.run("a")
    box.profile("a", port=9009)
    assert box.apply(as_json=True) == Exit.OK
    assert json.loads(box.out)["restart"] == ["a"]
    assert box.manager.calls == ["daemon-reload", "reload supervisor"]
    box.profile("a", port=9010)
    box.apply()
    assert "restart to take effect: appliance restart a" in box.out


def test_who_has_to_restart_what_is_told_by_the_file(box: Box) -> None:
    """Credentials of the gateway wait for its restart, addresses of the page for nothing."""
    box.profile("a")
    box.apply()
    gateway = GatewaySettings(
        tls_certificate="/etc/tls/chain.pem",
        tls_key="/etc/tls/key.pem",
    )
    web = WebSettings(listen=("127.0.0.1", "127.0.0.2"))
    box.settings = replace(box.settings, gateway=gateway, web=web)
    assert box.apply() == Exit.OK
    lines = box.out.splitlines()
    service = lines.index(f"create {SERVICE_DROP_IN}")
    assert lines[service + 1] == (
        "  restart to take effect: sudo systemctl restart appliance-gateway.service"
    )
    page = lines.index(f"create {WEB_DROP_IN}")
    assert lines[page + 1] == "  in force at once; who has signed in to the page signs in again"
    box.apply()
    assert "restart" not in box.out


def test_a_new_rival_is_no_reason_to_restart(box: Box) -> None:
    """Conflicts and deadlines count for a running model without a restart."""
    box.profile("a")
    box.profile("b", port=9001)
    box.apply()
    box.manager.run("b")
    box.profile("a2", port=9002)
    box.profile("b", port=9001, more='\n[deadlines]\nstop = "9s"\n')
    assert box.apply(as_json=True) == Exit.OK
    report = json.loads(box.out)
    assert (report["restart"], report["exit"]) == ([], 0)
    assert unit_of("a2") in box.unit("b").read_text()
    assert "TimeoutStopSec=9s" in box.unit("b").read_text()
    assert all(s["note"] is None for s in report["steps"])


def test_another_release_alone_is_no_change(box: Box) -> None:
    """The first line names the release; that is not worth a write or a restart."""
    box.profile("a")
    box.apply()
    text = box.unit("a").read_text()
    box.unit("a").write_text(text.replace("generated by appliance ", "generated by appliance 0.0."))
    assert box.apply() == Exit.OK
    assert "nothing to change" in box.out


def test_a_touched_profile_makes_systemd_read_again(box: Box) -> None:
    """Systemd warns about a newer SourcePath= until it is reloaded."""
    box.profile("a")
    box.apply()
    box.manager.run("a", stale=True)
    assert box.apply() == Exit.OK
    assert box.manager.calls == ["daemon-reload"]


def test_a_removed_profile_takes_its_unit_along(box: Box) -> None:
    """Unit, copy, manifest entry and the name in the rule go."""
    box.profile("a").unlink()
    box.profile("a")
    box.profile("b")
    box.apply()
    (box.settings.profiles_dir / "a.toml").unlink()
    assert box.apply() == Exit.OK
    assert f"remove {unit_of('a')}" in box.out
    assert not box.unit("a").exists()
    assert list(read_manifest(box.settings.applied_dir)) == ["b"]
    assert unit_of("a") not in box.settings.polkit_rule.read_text()
    assert unit_of("a") not in box.unit("b").read_text()


def test_the_polkit_rule_never_names_a_unit_that_is_not_there(box: Box) -> None:
    """However far an apply comes, no name in the rule could be taken for a transient unit."""
    box.profile("a")
    box.profile("b", port=9001)
    box.apply()
    box.profile("b", port=9002)
    (box.settings.profiles_dir / "a.toml").unlink()
    box.profile("c")
    files = {p.name: p.read_text() for p in box.settings.unit_dir.iterdir()}
    rule = box.settings.polkit_rule.read_text()
    assert box.apply() == Exit.OK
    plan = plan_apply(
        load_specs(box.settings).specs,
        Installed(
            files=files | {RULE_FILE: rule},
            last_written=files | {RULE_FILE: rule},
            catalogue={"a": made("a", "cpu"), "b": made("b", "cpu")},
        ),
        layout_of(box.settings, 252),
    )
    assert [[s.action for s in turn] for turn in plan.turns] == [
        ["update", "create"],
        ["update"],
        ["remove"],
    ]
    for step in plan.changes:
        if step.file == RULE_FILE:
            rule = step.text
        elif step.action is Action.REMOVE:
            del files[step.file]
        else:
            files[step.file] = step.text
        assert set(re.findall(r"appliance-backend-\w+\.service", rule)) <= files.keys()
    assert set(re.findall(r"appliance-backend-\w+\.service", rule)) == files.keys()


def test_an_apply_that_cannot_write_the_rule_removes_no_unit(box: Box) -> None:
    """The order is that of the plan on the disk, too."""
    box.profile("a")
    box.apply()
    (box.settings.profiles_dir / "a.toml").unlink()
    rules = box.settings.polkit_rule.parent
    rules.rename(rules.with_name("elsewhere"))
    rules.symlink_to("/proc")  # nobody, not even root, makes a file there
    assert box.apply() == Exit.FAILED
    assert box.unit("a").exists()


def test_an_edited_rule_keeps_every_unit(box: Box) -> None:
    """A rule that somebody wrote may name any unit; dropping the edit removes what is gone."""
    box.profile("a")
    box.profile("b", port=9001)
    box.apply()
    edit(box.settings.polkit_rule, '["ref"]', '["ref", "stop"]')
    (box.settings.profiles_dir / "a.toml").unlink()
    assert box.apply() == Exit.FAILED
    assert f"{RULE_FILE} was changed by hand and may name the unit" in box.out
    assert box.unit("a").exists()
    assert set(read_manifest(box.settings.applied_dir)) == {"a", "b"}
    assert box.apply(discard=True) == Exit.OK
    assert not box.unit("a").exists()
    assert unit_of("a") not in box.settings.polkit_rule.read_text()


@pytest.mark.parametrize("runs", [False, True])
def test_a_removed_profile_that_a_boot_starts_is_told(box: Box, *, runs: bool) -> None:
    """With the command that takes it out; nothing is said of one that is not committed."""
    box.profile("a")
    box.profile("b", port=9001)
    box.apply()
    state = box.settings.state_dir
    state.mkdir()
    (state / "active").write_text("a\n")
    for name in "ab":
        (box.settings.profiles_dir / f"{name}.toml").unlink()
    if runs:
        box.manager.run("a")
    box.apply()
    told = "a boot is still to start it: appliance uncommit a, or put its profile back"
    assert box.out.count("appliance uncommit") == box.out.count(told) == 1


def test_a_removed_profile_that_runs_keeps_its_unit(box: Box) -> None:
    """The unit of a removed profile that runs can be stopped, excludes others, and is reported."""
    box.profile("a")
    box.apply()
    box.manager.run("a")
    (box.settings.profiles_dir / "a.toml").unlink()
    box.profile("b")
    assert box.apply() == Exit.OK
    assert box.unit("a").exists()
    assert "appliance stop a" in box.out
    assert unit_of("a") in box.settings.polkit_rule.read_text()
    assert unit_of("a") in box.unit("b").read_text()
    box.manager.units.clear()
    box.apply()
    assert not box.unit("a").exists()


def test_a_broken_profile_keeps_its_unit_and_harms_no_other(box: Box) -> None:
    """The error is printed, the exit status says so, and the other profiles are applied."""
    box.profile("a")
    box.apply()
    unit = box.unit("a").read_text()
    box.profile("a", more="[nonsense")
    box.profile("b")
    assert box.apply() == Exit.CONFIG
    assert "a.toml" in box.err
    assert box.unit("a").read_text() == unit
    assert unit_of("a") in box.unit("b").read_text()
    assert list(read_manifest(box.settings.applied_dir)) == ["a", "b"]


def test_a_broken_profile_keeps_its_unit_without_a_manifest(box: Box) -> None:
    """A lost manifest must not make one bad file remove a unit."""
    box.profile("a")
    box.apply()
    box.profile("a", more="[nonsense")
    (box.settings.applied_dir / MANIFEST).unlink()
    assert box.apply() == Exit.CONFIG
    assert box.unit("a").exists()


@pytest.mark.parametrize("file", [MANIFEST, GATEWAY_FILE, f"{MANIFEST}.copy", "units/COPY"])
def test_a_directory_in_the_place_of_a_file_does_not_survive(box: Box, file: str) -> None:
    """A directory in place of a file is moved aside with its content, and the file is written."""
    box.profile("a")
    box.apply()
    place = box.settings.applied_dir / file.replace("COPY", unit_of("a"))
    place.unlink()
    place.mkdir()
    (place / "something").write_text("of somebody")
    box.profile("a", port=9001)
    assert box.apply(discard=True) == Exit.OK, box.err
    assert place.is_file()
    (aside,) = place.parent.glob(f".{place.name}.directory-*")
    assert (aside / "something").read_text() == "of somebody"
    assert read_manifest(box.settings.applied_dir)["a"].endpoint.port == 9001
    assert box.apply() == Exit.OK
    assert "nothing to change" in box.out


def test_each_applied_file_has_a_copy(box: Box) -> None:
    """Also where an older release, or somebody, left none: the next apply writes it."""
    box.profile("a")
    box.apply()
    for file in (MANIFEST, GATEWAY_FILE):
        path = box.settings.applied_dir / file
        assert copy_of(path).read_text() == path.read_text()
        copy_of(path).unlink()
    assert box.apply() == Exit.OK
    for file in (MANIFEST, GATEWAY_FILE):
        path = box.settings.applied_dir / file
        assert copy_of(path).read_text() == path.read_text()
    (box.settings.applied_dir / MANIFEST).write_text("{")
    (box.settings.profiles_dir / "a.toml").write_text("broken")
    assert box.apply() == Exit.CONFIG
    assert "its copy is used" in box.err
    assert set(read_manifest(box.settings.applied_dir)) == {"a"}


def test_a_damaged_manifest_is_written_anew(box: Box) -> None:
    """Apply is the remedy that its error names."""
    box.profile("a")
    box.apply()
    (box.settings.applied_dir / MANIFEST).write_text("{")
    assert box.apply() == Exit.OK
    assert "is damaged" in box.err
    assert list(read_manifest(box.settings.applied_dir)) == ["a"]


EDIT = ("RestartSec=5s", "RestartSec=7s")


def edit(path: Path, old: str = EDIT[0], new: str = EDIT[1]) -> str:
    """Change a file by hand; the new text."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path.read_text()


def test_a_hand_edit_is_shown_and_left(box: Box) -> None:
    """The diff and both ways out are printed; the file stays, even when the profile changes."""
    box.profile("a")
    box.apply()
    edited = edit(box.unit("a"))
    box.profile("a", port=9005)
    assert box.apply() == Exit.FAILED
    assert box.unit("a").read_text() == edited
    for text in ("-RestartSec=5s", "+RestartSec=7s", "--adopt-changes", "--discard"):
        assert text in box.out
    assert read_manifest(box.settings.applied_dir)["a"].endpoint.port == 9000


def test_discard_replaces_a_hand_edit(box: Box) -> None:
    """The file is as the profile says again."""
    box.profile("a")
    box.apply()
    before = box.unit("a").read_text()
    edit(box.unit("a"))
    assert box.apply(discard=True) == Exit.OK
    assert box.unit("a").read_text() == before
    assert box.apply() == Exit.OK


def test_adopt_keeps_a_hand_edit_in_the_profile(box: Box) -> None:
    """A hand edit becomes an override, comments stay, and from then on apply renders it."""
    path = box.profile("a")
    path.chmod(0o640)
    box.apply()
    edit(box.unit("a"))
    assert box.apply(adopt=True) == Exit.OK
    assert 'Service.RestartSec = "7s"' in path.read_text()
    assert path.read_text().startswith("# what it is for\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert "kept in a.toml: [unit] Service.RestartSec = 7s" in box.out
    assert "RestartSec=7s" in box.unit("a").read_text()
    assert box.apply() == Exit.OK
    assert "nothing to change" in box.out


def test_adopt_in_a_dry_run_only_says_so(box: Box) -> None:
    """Neither the profile nor the unit changes."""
    path = box.profile("a")
    box.apply()
    edit(box.unit("a"))
    before = (path.read_text(), box.unit("a").read_text())
    box.apply(adopt=True, dry_run=True)
    assert "would keep in a.toml: [unit] Service.RestartSec = 7s" in box.out
    assert (path.read_text(), box.unit("a").read_text()) == before


def test_what_cannot_be_adopted_is_listed_and_left(box: Box) -> None:
    """One inexpressible change keeps the whole edit out of the profile."""
    path = box.profile("a")
    box.apply()
    before = path.read_text()
    edit(box.unit("a"))
    edited = edit(box.unit("a"), "KillMode=mixed", "KillMode=none")
    assert box.apply(adopt=True) == Exit.FAILED
    assert "cannot be kept in a profile: Service.KillMode" in box.out
    assert path.read_text() == before
    assert box.unit("a").read_text() == edited


def test_an_adoption_that_spoils_the_profile_is_taken_back(box: Box) -> None:
    """A variable that the engine's own rules refuse leaves profile and unit as they were."""
    path = box.settings.profiles_dir / "a.toml"
    path.write_text(LLAMA)
    assert box.apply() == Exit.OK
    edited = edit(box.unit("a"), "KillMode=mixed", "KillMode=mixed\nEnvironment=LLAMA_ARG_HOST=::")
    assert box.apply(adopt=True) == Exit.FAILED
    assert "LLAMA_ARG_HOST" in box.out
    assert path.read_text() == LLAMA
    assert box.unit("a").read_text() == edited


def test_a_drop_in_is_adopted_and_removed(box: Box) -> None:
    """A drop-in of `systemctl edit` moves into the profile, and its directory is removed."""
    path = box.profile("a")
    box.apply()
    directory = box.settings.unit_dir / f"{unit_of('a')}.d"
    directory.mkdir()
    (directory / "override.conf").write_text("[Service]\nNice=5\n")
    assert box.apply() == Exit.FAILED
    assert box.apply(adopt=True) == Exit.OK
    assert 'Service.Nice = "5"' in path.read_text()
    assert "Nice=5" in box.unit("a").read_text()
    assert not directory.exists()


@pytest.mark.parametrize("option", ["", "adopt", "discard"])
def test_a_drop_in_for_every_backend_is_the_operators(box: Box, option: str) -> None:
    """A drop-in for every backend is mentioned and stays, and is no failure."""
    box.profile("a")
    directory = box.settings.unit_dir / "appliance-backend-.service.d"
    directory.mkdir()
    (directory / "nice.conf").write_text("[Service]\nNice=5\n")
    assert box.apply(adopt=option == "adopt", discard=option == "discard") == Exit.OK
    assert "appliance-backend-.service.d/nice.conf is a drop-in for every backend" in box.out
    assert (directory / "nice.conf").exists()


def test_a_foreign_unit_with_our_name_is_left(box: Box) -> None:
    """A file that apply never wrote is not ours to replace, and is not in the manifest."""
    box.profile("a")
    box.unit("a").write_text("[Service]\nExecStart=/bin/true\n")
    box.unit("stray").write_text("[Service]\nExecStart=/bin/true\n")
    assert box.apply() == Exit.FAILED
    assert "ExecStart=/bin/true" in box.unit("a").read_text()
    assert box.unit("stray").exists()
    assert read_manifest(box.settings.applied_dir) == {}
    assert box.apply(discard=True) == Exit.OK
    assert not box.unit("stray").exists()
    assert list(read_manifest(box.settings.applied_dir)) == ["a"]


def test_a_masked_or_linked_unit_is_left(box: Box) -> None:
    """`systemctl mask` and `link` are the operator's; apply does not write through the link."""
    box.profile("a")
    box.apply()
    elsewhere = box.unit("a").rename(box.settings.unit_dir.parent / "unit")
    for target in ("/dev/null", str(elsewhere)):
        box.unit("a").symlink_to(target)
        assert box.apply(adopt=True) == Exit.FAILED
        assert box.unit("a").is_symlink()
        assert box.apply(discard=True) == Exit.OK
        assert not box.unit("a").is_symlink()
        box.unit("a").unlink()
    assert elsewhere.exists()


def test_an_edited_rule_is_left(box: Box) -> None:
    """The polkit rule is guarded like a unit."""
    box.profile("a")
    box.apply()
    edited = edit(box.settings.polkit_rule, '["ref"]', '["ref", "stop"]')
    assert box.apply() == Exit.FAILED
    assert box.settings.polkit_rule.read_text() == edited
    assert box.apply(discard=True) == Exit.OK


def test_a_change_that_no_unit_shows_is_told(box: Box) -> None:
    """Names that clients may send are in no unit: apply says that they changed, a comment changes nothing."""
    path = box.profile("a")
    box.apply()
    path.write_text(f"# a remark\n{path.read_text()}")
    assert box.apply() == Exit.OK
    assert box.out == "1 profile is applied; nothing to change\n"
    path.write_text(path.read_text().replace('["m"]', '["m", "claude-*"]'))
    assert box.apply(dry_run=True) == Exit.OK
    assert box.out.splitlines()[0].startswith("would change a, for its next requests and starts")
    box.apply(as_json=True)
    assert json.loads(box.out)["updated"] == ["a"]
    assert read_manifest(box.settings.applied_dir)["a"].served == ("m", "claude-*")
    path.write_text(path.read_text().replace('"claude-*"', '"gpt-*"'))
    box.apply()
    assert box.out.splitlines() == [
        "changed a, for its next requests and starts; its unit stays as it is",
        "1 profile is applied",
    ]


def test_what_is_missing_on_the_disk_is_told_at_once(box: Box) -> None:
    """A profile whose model or program is not there is applied, with the warning that a switch would give."""
    path = box.settings.profiles_dir / "a.toml"
    path.write_text(LLAMA.replace("/bin/true", "/opt/none/llama-server"))
    assert box.apply() == Exit.OK
    *files, trap = box.err.splitlines()
    assert files == [
        "a: model file missing: /m.gguf (is /m.gguf mounted?)",
        "a: engine not found: /opt/none/llama-server: install it or correct a.toml",
    ]
    assert trap.startswith("a: trap prompt-cache: ")
    model = box.settings.profiles_dir.parent / "m.gguf"
    model.write_bytes(b"GGUF\x03\0\0\0")
    path.write_text(LLAMA.replace("/m.gguf", str(model)))
    box.apply()
    assert "a: model file damaged: m.gguf" in box.err


def test_the_result_can_be_read_by_a_program(box: Box) -> None:
    """--json is one object with every step and the exit status."""
    box.profile("a")
    assert box.apply(as_json=True) == Exit.OK
    document = json.loads(box.out)
    assert document["profiles"] == ["a"]
    assert document["exit"] == 0
    assert document["reloaded"] is True
    assert {s["action"] for s in document["steps"]} == {"create"}


def test_only_root_may_apply(box: Box) -> None:
    """Anybody else is told the command, and nothing is read or written."""
    box.profile("a")
    before = box.snapshot()
    assert box.apply(euid=1000) == Exit.PERMISSION
    assert "sudo appliance apply" in box.err
    assert box.snapshot() == before
    assert not box.settings.applied_dir.exists()


def test_two_applies_at_once(box: Box) -> None:
    """The second is told to wait and changes nothing."""
    box.profile("a")
    box.settings.applied_dir.mkdir()
    with locked(box.settings.applied_dir / "lock"):
        assert box.apply() == Exit.BUSY
    assert not box.unit("a").exists()
    assert box.apply() == Exit.OK


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of another apply."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_where_systemd_does_not_run(box: Box) -> None:
    """While an image is made everything is installed and nothing is reloaded."""
    box.manager.runs = False
    box.profile("a")
    assert box.apply(as_json=True) == Exit.OK
    assert json.loads(box.out)["reloaded"] is False
    assert box.unit("a").exists()


def test_no_profiles_directory_says_what_to_do(box: Box) -> None:
    """A directory that is not there removes no unit."""
    box.profile("a")
    box.apply()
    (box.settings.profiles_dir / "a.toml").unlink()
    box.settings.profiles_dir.rmdir()
    assert box.apply() == Exit.CONFIG
    assert f"mkdir -p {box.settings.profiles_dir}" in box.err
    assert box.unit("a").exists()


def test_no_profile_yet(box: Box) -> None:
    """The rule for hold and apply is installed, and the next step is named."""
    assert box.apply() == Exit.OK
    assert f"no profile in {box.settings.profiles_dir} yet" in box.out
    assert "appliance-hold.service" in box.settings.polkit_rule.read_text()


def test_an_apply_that_was_cut_short_is_finished_by_the_next(box: Box) -> None:
    """Units without the new manifest: the next apply writes the rest and tells the supervisor."""
    box.profile("a")
    box.apply()
    manifest = box.settings.applied_dir / MANIFEST
    old = manifest.read_text()
    box.profile("a", port=9050)
    box.apply()
    manifest.write_text(old)
    assert box.apply() == Exit.OK
    assert read_manifest(box.settings.applied_dir)["a"].endpoint.port == 9050
    assert box.manager.calls == ["reload supervisor"]


def test_what_cannot_be_written_is_said(box: Box) -> None:
    """A path in the way is one sentence, not a traceback."""
    box.profile("a")
    box.settings.applied_dir.write_text("a file")
    assert box.apply() == Exit.FAILED
    assert f"cannot write {box.settings.applied_dir}" in box.err


def test_the_unit_that_asks_an_engine_follows_its_backend(box: Box) -> None:
    """Made, kept and removed with the backend's unit; a person's edit of it is not kept."""
    path = box.settings.profiles_dir / "l.toml"
    path.write_text(MINIMAL["llama-server"])
    unit = box.settings.unit_dir / build_unit_of("l")
    records = box.settings.applied_dir / "builds"
    assert box.apply() == 0
    text = unit.read_text()
    assert f"--record {records}/l.json --ask help -- /opt/l\n" in text
    (records / "l.json").touch()
    before = box.snapshot()
    assert box.apply() == 0
    assert (box.snapshot(), "daemon-reload" in box.manager.calls) == (before, False)
    unit.write_text(text.replace("Nice=10", "Nice=0"))
    assert box.apply() == 0
    assert (unit.read_text(), "daemon-reload" in box.manager.calls) == (text, True)
    drop_in = box.settings.unit_dir / f"{unit_of('l')}.d/mine.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nBindReadOnlyPaths=/home/ana/lib\n")
    box.apply()
    assert "BindReadOnlyPaths=/home/ana/lib\n" in unit.read_text()
    path.unlink()
    drop_in.unlink()
    assert box.apply() == 0
    assert not unit.exists()
    assert not list(records.iterdir())
