"""Backend units: who excludes whom, and what systemd says about them."""

import shutil
import subprocess
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.claims import Claim
from appliance.model.engine_build import HELP_QUESTION
from appliance.model.errors import ProfileError
from appliance.model.names import HOLD_UNIT, RUN_UNIT, unit_of
from appliance.model.paths import BACKEND_SCRIPT, GATE_SCRIPT
from appliance.model.profile import Deadlines, Endpoint
from appliance.model.profile_values import Override
from appliance.model.spec import Ordering, Patch
from appliance.switch.units.backend_unit import (
    StandIn,
    UnitSpec,
    build_unit,
    catalogue,
    problem,
    render,
    stand_in,
)
from appliance.switch.units.daemon_drop_ins import polkit_rule
from appliance.switch.units.text import seal_holds, sections_of
from tests.fakes.unit_specs import LAYOUT, made, one_of_each, spec, started, with_keys

ANALYZE = shutil.which("systemd-analyze")
needs_systemd_analyze = pytest.mark.skipif(
    ANALYZE is None, reason="no systemd-analyze here: that systemd accepts the units is not shown"
)


def values(text: str, key: str, section: str = "Service") -> list[str]:
    """Every value of one key."""
    found = (s for s in sections_of(text) if s.name == section)
    return [v for s in found for v in s.values(key)]


def words(text: str, key: str) -> list[str]:
    """The words of a key in [Unit]."""
    return [w for v in values(text, key, "Unit") for w in v.split()]


def one(spec_: UnitSpec, *, systemd: int = 252) -> str:
    """The text of a lone unit."""
    (text,) = render([spec_], [], replace(LAYOUT, systemd=systemd)).values()
    return text


@needs_systemd_analyze
@pytest.mark.parametrize("systemd", [252, 254])
def test_systemd_accepts_every_unit_and_finds_it_confined(systemd: int, tmp_path: Path) -> None:
    """`verify` is silent and `security` finds an exposure of at most 3.0."""
    prefix = tmp_path / "prefix"
    (prefix / "bin").mkdir(parents=True)
    for script in (GATE_SCRIPT, BACKEND_SCRIPT):
        (prefix / script).symlink_to("/bin/true")
    # This machine's systemd may not know the newer keys: then only the security is asked.
    layout = replace(LAYOUT, prefix=str(prefix), systemd=systemd)
    for name, text in render(one_of_each(), [], layout).items():
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        if systemd <= installed_systemd():
            assert analyze("verify", file) == ""
        analyze("security", "--offline=yes", "--threshold=30", "--no-pager", file)


def installed_systemd() -> int:
    """The major version of this machine's systemd."""
    done = subprocess.run([str(ANALYZE), "--version"], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[1])


def analyze(*arguments: str | Path) -> str:
    """Return what systemd-analyze writes to stderr; it must succeed."""
    command = [str(ANALYZE), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


DEVICES = st.sampled_from(["gpu-all", "gpu-0", "gpu-1", "cpu"])
CLAIMS = st.dictionaries(
    st.from_regex(r"[a-z0-9][a-z0-9-]{0,5}", fullmatch=True),
    st.sets(DEVICES, max_size=2),
    min_size=1,
    max_size=6,
)


@given(CLAIMS, st.integers(-3, 3), st.booleans())
def test_rivals_exclude_each_other_and_are_ordered_one_way(
    claims: dict[str, set[str]],
    kept_count: int,
    knew_all: bool,  # noqa: FBT001  drawn by hypothesis
) -> None:
    """Of two rivals at least one conflicts and exactly one comes after; others are strangers.

    Some units are kept from an earlier apply, which knew all profiles or only those.
    """
    everything = [spec(name, *devices) for name, devices in claims.items()]
    kept = sorted(claims)[:kept_count] if kept_count >= 0 else sorted(claims)[kept_count:]
    earlier = everything if knew_all else [s for s in everything if s.applied.name in kept]
    old, known = render(earlier, [], LAYOUT), catalogue(earlier, [])
    stand_ins = [stand_in(known[n], old[unit_of(n)]) for n in kept]
    units = {**old, **render(everything, stand_ins, LAYOUT)}
    for a, b in combinations(sorted(claims), 2):
        rivals = known_claim(a, claims).intersects(known_claim(b, claims))
        pairs = ((a, b), (b, a))
        conflicts = [unit_of(y) in words(units[unit_of(x)], "Conflicts") for x, y in pairs]
        afters = [unit_of(y) in words(units[unit_of(x)], "After") for x, y in pairs]
        assert any(conflicts) == rivals
        assert sum(afters) == rivals
        assert all(conflicts) == rivals or a in kept or b in kept


def known_claim(name: str, claims: dict[str, set[str]]) -> Claim:
    """The claim of one of the drawn profiles."""
    return Claim(devices=frozenset(claims[name]))


def test_every_backend_gives_way_to_the_hold_and_to_foreign_units() -> None:
    """The hold and the units named in the settings end a backend, and are waited for."""
    layout = replace(LAYOUT, foreign_units=("vllm.service", "ollama.service"))
    for text in render(one_of_each(), [], layout).values():
        for unit in (HOLD_UNIT, "vllm.service", "ollama.service"):
            assert unit in words(text, "Conflicts")
            assert unit in words(text, "After")


def test_nothing_is_started_at_boot_by_systemd() -> None:
    """No backend has an [Install] section."""
    units = render(one_of_each(), [], LAYOUT)
    assert all("[Install]" not in text for text in units.values())


def test_a_stand_in_is_regarded_but_not_rendered() -> None:
    """The unit of a broken profile stays as it is, and newcomers are ordered after it."""
    kept = StandIn(applied=made("zeta", "gpu-all"))
    units = render([spec("alpha", "gpu-all")], [kept], LAYOUT)
    assert list(units) == [unit_of("alpha")]
    assert unit_of("zeta") in words(units[unit_of("alpha")], "Conflicts")
    assert unit_of("zeta") in words(units[unit_of("alpha")], "After")


def test_a_stand_in_that_is_already_after_us_stays_so() -> None:
    """A mutual After= would make two stops at once impossible."""
    kept = StandIn(applied=made("zeta", "gpu-all"), after=frozenset({unit_of("alpha")}))
    units = render([spec("alpha", "gpu-all")], [kept], LAYOUT)
    assert unit_of("zeta") not in words(units[unit_of("alpha")], "After")


def test_the_catalogue_names_conflicts() -> None:
    """The manifest says who excludes whom, for the daemon."""
    found = catalogue([spec("a", "gpu-0"), spec("b", "gpu-all"), spec("c", "cpu")], [])
    assert {n: a.conflicts for n, a in found.items()} == {"a": ("b",), "b": ("a",), "c": ()}


def test_restarts_back_off_where_systemd_can() -> None:
    """RestartSteps= came with systemd 254 and is a warning before."""
    assert values(one(spec("a", "cpu"), systemd=253), "RestartSteps") == []
    assert values(one(spec("a", "cpu"), systemd=0), "RestartSteps") == []
    assert values(one(spec("a", "cpu"), systemd=254), "RestartSteps") == ["4"]


@pytest.mark.parametrize(("no_progress_s", "deadline"), [(300.0, "305s"), (1.5, "6.5s")])
def test_start_may_be_silent_as_long_as_the_profile_says(
    no_progress_s: float, deadline: str
) -> None:
    """The time-out is the no-progress deadline; a gate that waits longer extends it."""
    deadlines = Deadlines(release_s=600.0, no_progress_s=no_progress_s, stop_s=7)
    text = one(spec("a", "cpu", deadlines=deadlines))
    assert values(text, "TimeoutStartSec") == [deadline]
    assert values(text, "TimeoutStopSec") == ["7s"]
    assert values(text, "TimeoutStartFailureMode") == ["kill"]


@pytest.mark.parametrize(
    ("gpus", "gate", "devices"),
    [
        ("all", "--gpus all", ["char-nvidia* rw"]),
        ((0, 1), "--gpus 0,1", ["char-nvidia* rw"]),
        ((), "", []),
    ],
)
def test_only_a_profile_with_gpus_sees_their_devices(
    gpus: object, gate: str, devices: list[str]
) -> None:
    """A CPU profile gets no device at all; a shared one on a GPU gets the GPUs' nodes."""
    text = one(spec("a", gpus=gpus))
    assert values(text, "DeviceAllow") == devices
    assert values(text, "PrivateDevices") == ([] if devices else ["yes"])
    assert gate in values(text, "ExecCondition")[0]
    assert ("--gpus" in values(text, "ExecCondition")[0]) == bool(gate)


@pytest.mark.parametrize(
    ("binary", "model", "home", "shown"),
    [
        ("/opt/v/bin/vllm", "/models/m", "yes", []),
        ("/home/ana/v/bin/vllm", "/models/m", "tmpfs", ["-/home/ana/v"]),
        ("/home/ana/bin/llama-server", "/models/m", "tmpfs", ["-/home/ana/bin"]),
        ("/root/llama/llama-server", "/models/m", "tmpfs", ["-/root/llama"]),
        ("/opt/v/bin/vllm", "/home/ana/m x", "tmpfs", ['"-/home/ana/m x"']),
        ("/homely/bin/vllm", "/rooted/m", "yes", []),
    ],
)
def test_of_a_home_only_what_the_profile_names_is_shown(
    binary: str, model: str, home: str, shown: list[str]
) -> None:
    """A model or an engine in a home is bound read-only; the rest of every home is empty."""
    text = one(spec("a", "cpu", binary=binary, model_path=model))
    assert values(text, "ProtectHome") == [home]
    leases = "-/run/appliance-leases/"
    assert [v for v in values(text, "BindReadOnlyPaths") if not v.startswith(leases)] == shown


@pytest.mark.parametrize(
    ("devices", "shown"),
    [
        (("gpu-all",), ["gpu-all"]),
        (("gpu-1",), ["gpu-all", "gpu-1"]),
        (("cpu",), ["cpu"]),
        ((), []),
    ],
)
def test_an_engine_sees_the_leases_of_its_claim_alone(
    devices: tuple[str, ...], shown: list[str]
) -> None:
    """Where all of them are it sees nothing; its own are in a place that is otherwise empty."""
    text = one(spec("a", *devices))
    assert "/run/appliance-leases" in values(text, "InaccessiblePaths")
    assert "/run/appliance-claimed:ro" in values(text, "TemporaryFileSystem")
    assert values(text, "BindReadOnlyPaths") == [
        f"-/run/appliance-leases/{name}:/run/appliance-claimed/{name}" for name in shown
    ]
    (start,) = values(text, "ExecStart")
    assert ("--lease-dir /run/appliance-claimed" in start) == bool(shown)


@pytest.mark.parametrize(
    ("user", "found"),
    [("", {"User": ["apl-a"], "DynamicUser": ["yes"]}), ("ana", {"User": ["ana"]})],
)
def test_every_engine_has_a_user_to_itself(user: str, found: dict[str, list[str]]) -> None:
    """Unless its profile names one; its directories are closed to others in either case."""
    text = one(spec("a", "cpu", user=user))
    assert values(text, "User") == found["User"]
    assert values(text, "DynamicUser") == found.get("DynamicUser", [])
    assert values(text, "Group") == ["appliance-backend"]
    assert values(text, "StateDirectoryMode") == values(text, "CacheDirectoryMode") == ["0700"]
    assert "/run/appliance-backend:ro" in values(text, "TemporaryFileSystem")
    assert values(text, "BindPaths") == ["/run/appliance-backend/a"]


def test_no_configuration_is_read_that_the_profile_does_not_show() -> None:
    """The directories where engines look for options by themselves are out of reach."""
    text = one(spec("a", "cpu"))
    assert "-/etc/llama.cpp" in values(text, "InaccessiblePaths")
    assert "XDG_CONFIG_HOME=/nonexistent" in values(text, "Environment")
    assert "PYTHONNOUSERSITE=1" in values(text, "Environment")


def test_a_patch_may_write_where_it_says() -> None:
    """Writable directories are opened, in a home by a bind mount."""
    patch = Patch(command=("/opt/v/bin/p",), writable=("/opt/v", "/home/ana/v"))
    text = one(with_keys(spec("a", "cpu"), patch=patch))
    assert values(text, "ReadWritePaths") == ["-/opt/v"]
    assert "-/home/ana/v" in values(text, "BindPaths")


def test_the_daemon_can_write_to_a_backends_socket() -> None:
    """A unix socket is open for the group, everything else of a backend for nobody."""
    socket = Endpoint(socket="/run/elsewhere/e.sock")
    assert values(one(spec("a", endpoint=socket)), "UMask") == ["0007"]
    assert values(one(spec("a", endpoint=socket)), "ReadWritePaths") == ["-/run/elsewhere"]
    assert values(one(spec("a")), "UMask") == ["0077"]


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("Service.OOMScoreAdjust", ("5",), ["300"], ["5"]),
        ("Service.Nice", ("5",), [], ["5"]),
        ("Unit.StartLimitBurst", ("9",), ["5"], ["9"]),
        (
            "Service.SystemCallFilter",
            ("@debug",),
            ["@system-service"],
            ["@system-service", "~@privileged @obsolete", "@debug"],
        ),
        ("Unit.After", ("x.service",), [HOLD_UNIT], [HOLD_UNIT, "x.service"]),
        ("Service.DeviceAllow", ("char-drm rw",), [], ["char-drm rw"]),
    ],
)
def test_overrides_replace_or_join(
    name: str, value: tuple[str, ...], before: list[str], after: list[str]
) -> None:
    """A key of ours is replaced where it stands; lists that we need are joined."""
    section, _, key = name.partition(".")
    override = Override(section=section, key=key, values=value)
    plain = one(spec("a", "cpu"))
    changed = one(with_keys(spec("a", "cpu"), unit=(override,)))
    assert values(plain, key, section)[:1] == before
    assert values(changed, key, section) == after


PATCH = Patch(command=("/opt/patch",), writable=("/opt",), expect=("done",))
ANA = spec("a", "cpu", binary="/home/ana/bin/vllm", model_path="/home/ana/m")


@pytest.mark.parametrize(
    "broken",
    [
        started(spec("a", "cpu"), environment={"A-B": "x"}),
        started(spec("a", "cpu"), environment={"A": "\a"}),
        started(spec("a", "cpu"), environment={"A": "\ud800"}),
        started(spec("a", "cpu"), argv=("/opt/vllm", "a\0b")),
        started(spec("a", "cpu"), argv=("/opt/vllm", "\ud800")),
        spec("a", "cpu", health_path="/\0"),
        spec("a", "cpu", model_path="/models/\n"),
        spec("a", "cpu", binary="/opt/\ud800"),
        with_keys(spec("a", "cpu"), order=Ordering(mounts=("models",))),
        with_keys(spec("a", "cpu"), patch=replace(PATCH, command=("/opt/\ud800",))),
        with_keys(spec("a", "cpu"), patch=replace(PATCH, expect=("\ud800",))),
        with_keys(spec("a", "cpu"), patch=replace(PATCH, writable=("/opt/\n",))),
        with_keys(spec("a", "cpu"), patch=replace(PATCH, writable=("/home/ana/\n",))),
        with_keys(spec("a", "cpu"), unit=(Override(section="Service", key="X", values=("1",)),)),
        replace(ANA, applied=replace(ANA.applied, places=("/home/ana/\n",))),
        replace(ANA, applied=replace(ANA.applied, files=("/home/\ud800",))),
        replace(ANA, applied=replace(ANA.applied, programs=("/home/\n/bin/x",))),
        spec("a", "cpu", endpoint=Endpoint(socket="/srv/\n/a.sock")),
    ],
)
def test_a_profile_that_cannot_be_rendered_says_why(broken: UnitSpec) -> None:
    """The problem is what the rendering would raise, so that one profile takes no others down."""
    with pytest.raises(ProfileError) as raised:
        render([broken], [], LAYOUT)
    assert problem(broken, LAYOUT) == str(raised.value)


def test_a_profile_that_can_be_rendered_has_no_problem() -> None:
    """Odd paths where no mount shows them are none either."""
    for good in (*one_of_each(), ANA, spec("a", "cpu", places=("/models/\n",))):
        assert problem(good, LAYOUT) is None
        assert render([good], [], LAYOUT)


def test_a_single_gpu_shares_the_lock_on_all() -> None:
    """The kernel's locks are named in the order they are taken."""
    text = one(spec("a", claim=Claim(devices=frozenset({"gpu-1"}))))
    expected = "--lease gpu-all:shared --lease gpu-1:exclusive"
    assert expected in values(text, "ExecStart")[0]
    assert expected in values(text, "ExecCondition")[0]


def test_the_polkit_rule_names_exact_units() -> None:
    """A prefix would match a transient unit that runs anything as root."""
    rule = polkit_rule(["b", "a"], source="/p", version="1")
    names = [line.strip(' ",') for line in rule.splitlines() if line.startswith('  "')]
    assert names == [unit_of("a"), unit_of("b"), HOLD_UNIT, RUN_UNIT]
    assert 'VERBS = ["ref"];' in rule


def service(text: str) -> dict[str, list[str]]:
    (found,) = (s for s in sections_of(text) if s.name == "Service")
    keys = dict.fromkeys(key for key, _ in found.entries)
    return {key: list(found.values(key)) for key in keys}


def backend(name: str = "genesis") -> str:
    (text,) = render([spec(name, "gpu-all")], [], LAYOUT).values()
    return text


def test_a_program_is_asked_as_the_user_of_its_backend_and_sees_no_gpu() -> None:
    """User, environment and view are the backend's; devices, network and leases are not."""
    text = build_unit(
        replace(made("genesis", "gpu-all"), engine="llama-server"), backend(), (), LAYOUT
    )
    unit, theirs = service(text), service(backend())
    assert seal_holds(text)
    for key in ("User", "Group", "DynamicUser", "Environment", "ProtectHome", "SystemCallFilter"):
        assert unit[key] == theirs[key]
    assert unit["PrivateDevices"] == unit["PrivateNetwork"] == ["yes"]
    for key in (
        "DeviceAllow",
        "SupplementaryGroups",
        "BindPaths",
        "ReadWritePaths",
        "StateDirectory",
    ):
        assert key not in unit
    assert not any("/run/appliance-claimed/" in v for v in unit.get("BindReadOnlyPaths", []))
    record = "/var/lib/appliance-applied/builds/genesis.json"
    assert unit["StandardOutput"] == [f"file:{record}"]
    (command,) = unit["ExecStart"]
    assert command.endswith(f"--record {record} --ask {HELP_QUESTION} -- /opt/vllm/bin/vllm")
    assert "Conflicts" not in text


def test_a_drop_in_of_the_backend_counts() -> None:
    """A place that a person shows to the engine is shown to the question, too."""
    applied = made("genesis", "gpu-all")
    drop_in = "[Service]\nBindReadOnlyPaths=/home/ana/lib\n"
    unit = service(build_unit(applied, backend(), (drop_in,), LAYOUT))
    assert "/home/ana/lib" in unit["BindReadOnlyPaths"]


def test_other_engines_have_no_such_unit() -> None:
    """A command is never asked, nor is an engine of another release."""
    for engine in ("command", "xllamacpp", "of-tomorrow"):
        assert build_unit(replace(made("x"), engine=engine), backend("x"), (), LAYOUT) == ""


def test_a_percent_sign_in_a_path_is_not_expanded() -> None:
    """The path of the record is a specifier's place in systemd."""
    layout = replace(LAYOUT, builds_dir="/var/100%")
    assert "StandardOutput=file:/var/100%%/x.json\n" in build_unit(
        made("x"), backend("x"), (), layout
    )
