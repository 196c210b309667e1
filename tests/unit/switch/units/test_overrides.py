"""[unit] overrides: the keys and values that a profile may set, and what becomes of all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.errors import ProfileError
from appliance.model.profile_values import Override
from appliance.switch.units.backend_unit import render
from appliance.switch.units.overrides import ADDED, ALLOWED, COMMAND, UNITS, refusal
from appliance.switch.units.text import sections_of, words_of
from tests.fakes.override_samples import SAMPLES
from tests.fakes.unit_specs import LAYOUT, spec, with_keys


def override(name: str, *values: str) -> Override:
    """One override."""
    section, _, key = name.partition(".")
    return Override(section=section, key=key, values=values)


@pytest.mark.parametrize("name", sorted(ALLOWED))
def test_every_allowed_key_takes_its_samples(name: str) -> None:
    """Each key of the table accepts what people would write, and never an empty value."""
    for value in SAMPLES[name]:
        assert refusal(override(name, value)) is None, value
        assert refusal(override(name, f"  {value} ")) is None, value
    for value in ("", " ", "\t", "x\n", f"{SAMPLES[name][0]}\\", f"{SAMPLES[name][0]}\n[Service]"):
        assert refusal(override(name, value)), value
    assert refusal(override(name, SAMPLES[name][0], ""))


PRIVILEGED = [
    "+/bin/x",
    "!/bin/x",
    "!!/bin/x",
    "-+/bin/x",
    "@-!/bin/x x",
    " +/bin/x",
    "\t+/bin/x",
    "  -  +/bin/x",
    '"+/bin/x"',
    "'+/bin/x'",
    '"\\x2b/bin/x"',
    "\\x2b/bin/x",
    '-"+/bin/x"',
    '""+/bin/x',
    "/bin/true ; +/usr/bin/touch /x",
    "/bin/true ;\t+/usr/bin/touch /x",
    "/bin/true a ; b ; +/x",
    "; +/bin/x",
    "/bin/true ;",
    '/bin/true "a b" ; !/x',
    "/bin/true 'a' ; /bin/x",
    "/bin/true a\\ ; +/x",
    "|/bin/x",
    "bin/x",
    "%h/x",
    "/bin/x 'a",
    "/bin/true \u00a0; +/x",
]
UNREADABLE = [
    "@/bin/x",
    "--/bin/x",
    "-@-/bin/x x",
    "/bin/../x",
    "/bin/./x",
    "/bin/",
    "/bin//x",
    "/bin/x %z",
    "/bin/x %%%",
    "/bin/x \\q",
    "/bin/x \\x0",
    "/bin/x \\x00",
    "/bin/x \\\\\\",
]
"""Commands that make systemd refuse the whole unit, or that its versions read differently."""


@pytest.mark.parametrize("value", PRIVILEGED + UNREADABLE)
@pytest.mark.parametrize("key", ["ExecStartPost", "ExecStop", "ExecStopPost"])
def test_no_command_of_an_override_runs_as_root(key: str, value: str) -> None:
    """A prefix for privileges is found behind blanks, quotes, escapes and a lone semicolon."""
    assert refusal(override(f"Service.{key}", value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Install.WantedBy", "multi-user.target"),
        ("Socket.ListenStream", "80"),
        ("Service.nice", "1"),
        ("Service.Nice ", "1"),
        ("Service.Nice\nExecStart", "1"),
        ("Service.PermissionsStartOnly", "yes"),
        ("Service.ExecStart", "/bin/sh"),
        ("Service.ExecStartPre", "/bin/sh"),
        ("Service.ExecCondition", ""),
        ("Unit.BindTo", "x.service"),
        ("Unit.BindsTo", "x.service"),
        ("Unit.PropagatesStopTo", "appliance-gateway.service"),
        ("Unit.Conflicts", "ollama.service"),
        ("Unit.OnFailureJobMode", "isolate"),
        ("Unit.SuccessAction", "reboot"),
        ("Unit.FailureAction", "reboot"),
        ("Unit.StartLimitAction", "reboot"),
        ("Unit.JobTimeoutAction", "reboot"),
        ("Unit.AllowIsolate", "yes"),
        ("Service.TemporaryFileSystem", "/run/appliance-leases"),
        ("Service.InaccessiblePaths", "/run/appliance-leases"),
        ("Service.RestartForceExitStatus", "78 79"),
        ("Service.RestartPreventExitStatus", ""),
        ("Service.SuccessExitStatus", "1"),
        ("Service.NetworkNamespacePath", "/run/netns/x"),
        ("Service.JoinsNamespaceOf", "x.service"),
        ("Service.StandardOutput", "truncate:/etc/passwd"),
        ("Service.StandardError", "file:/etc/passwd"),
        ("Service.PAMName", "login"),
        ("Service.RootDirectory", "/x"),
        ("Service.Delegate", "yes"),
        ("Service.Slice", "x.slice"),
        ("Service.RuntimeDirectory", "../x"),
        ("Service.LimitCORE", "infinity"),
        ("Service.IPAddressAllow", "any"),
        ("Service.User", "ana"),
        ("Service.SupplementaryGroups", "docker"),
        ("Service.Environment", "A=b"),
        ("Service.TimeoutStopSec", "infinity"),
        ("Service.SystemCallFilter", "@mount"),
        ("Service.SystemCallFilter", "~@system-service"),
        ("Service.LoadCredential", "x:/etc/shadow"),
        ("Service.LoadCredential", "x:/etc/credstore/../shadow"),
        ("Service.DeviceAllow", "/dev/sda rw"),
        ("Service.DeviceAllow", "block-* rw"),
        ("Service.DeviceAllow", "/dev/kfd rwm"),
        ("Service.Nice", "-20"),
        ("Service.Nice", "5.0"),
        ("Service.OOMScoreAdjust", "-1000"),
        ("Service.KillMode", "none"),
        ("Service.KillSignal", "SIGUSR1"),
        ("Service.Restart", "on-success"),
        ("Service.MemoryMax", "101%"),
        ("Service.CPUSchedulingPolicy", "fifo"),
        ("Unit.After", "appliance-backend-b.service"),
        ("Unit.After", "a.service appliance-hold.service"),
        ("Unit.After", "shutdown.target"),
        ("Unit.Wants", "reboot.target"),
        ("Unit.Wants", "emergency.service.target"),
        ("Unit.Wants", "systemd-poweroff.service"),
        ("Unit.Wants", "debug-shell.service"),
        ("Unit.Wants", "x@%n.service"),
        ("Unit.OnFailure", "appliance-boot.service"),
        ("Unit.OnFailure", "%n"),
        ("Unit.OnFailure", "@%n.service"),
    ],
)
def test_overrides_that_could_break_a_promise_are_refused(name: str, value: str) -> None:
    """The refusal is one sentence that names the key, from the parser and from the renderer."""
    given_ = override(name, value)
    reason = refusal(given_)
    assert reason is not None
    assert reason.startswith(f"{name}: ")
    with pytest.raises(ProfileError, match=r"a\.toml"):
        render([with_keys(spec("a", "cpu"), unit=(given_,))], [], LAYOUT)


@pytest.mark.parametrize("key", ["BindPaths", "BindReadOnlyPaths", "ReadWritePaths"])
@pytest.mark.parametrize(
    "value",
    [
        *("/", "/run/appliance-leases", "/run", "/opt", "/opt/appliance/current", "/var/lib"),
        *("/var/lib/appliance-backend/b", "/var/lib/private/appliance-backend/b"),
        *("/var", "/etc/x", "/usr/bin", "/home", "/home/ana"),
        *("/srv/a:/opt/appliance", "/srv/../etc", "/srv/./a", "//srv", "srv", "+/srv", "/srv/%n"),
        *('"/srv/a b"', "/srv/a /etc", "/srv/a  /srv/b", "/srv/a\\x20b"),
    ],
)
def test_paths_of_an_override_are_data(key: str, value: str) -> None:
    """No path is, contains or lies in what belongs to the system, the appliance or a whole home."""
    assert refusal(override(f"Service.{key}", value))


def test_a_refusal_shows_a_long_value_shortened_on_one_line() -> None:
    """Text of any length and with control characters becomes one short line."""
    reason = refusal(override("Service.Nice", "9\n" * 2000))
    assert reason is not None
    assert len(reason) < 200
    assert reason.isprintable()


def test_a_key_without_a_hint_says_what_root_can_do() -> None:
    """Every refused key has a way on."""
    assert "for all backends at once, in a drop-in" in str(
        refusal(override("Service.ProtectClock", "no"))
    )


def test_keys_that_are_replaced_have_no_list_of_ours() -> None:
    """Of the keys that the appliance itself sets, lists are joined and single values replaced."""
    text = "".join(render([spec("a", "cpu"), spec("b", "gpu-all")], [], LAYOUT).values())
    for section in sections_of(text):
        for key in {key for key, _ in section.entries} & {n.partition(".")[2] for n in ALLOWED}:
            name = f"{section.name}.{key}"
            assert name in ADDED or all(len(v.split()) == 1 for v in section.values(key)), name


COMMANDS = st.lists(
    st.sampled_from(
        ["/bin/a", "+", "!", "-", "@", ":", "|", ";", " ", "\t", '"', "'", "\\", "x", "%n", "\\x2b"]
    ),
    max_size=9,
).map("".join)


@given(COMMANDS)
def test_an_accepted_command_is_one_plain_command(value: str) -> None:
    """An accepted command has a plain program without privileges, and no second command."""
    if COMMAND.accepts(value.strip()):
        first, *others = words_of(value.strip())
        assert first.lstrip("-@:").startswith("/")
        assert ";" not in others


@given(st.dictionaries(st.sampled_from(sorted(ALLOWED)), st.text(max_size=20) | COMMANDS))
def test_a_rendered_unit_parsed_back_has_no_privileged_command(drawn: dict[str, str]) -> None:
    """Only the gate has a prefix for privileges, and no key occurs that was not asked for."""
    kept = tuple(o for n, v in drawn.items() if refusal(o := override(n, v)) is None)
    (text,) = render([with_keys(spec("a", "cpu"), unit=kept)], [], LAYOUT).values()
    (plain,) = render([spec("a", "cpu")], [], LAYOUT).values()
    entries = {s.name: dict(s.entries) for s in sections_of(text)}
    before = {s.name: dict(s.entries) for s in sections_of(plain)}
    assert entries.keys() == before.keys()
    for name, section in entries.items():
        asked = {o.key for o in kept if o.section == name}
        assert section.keys() <= before[name].keys() | asked
    commands = [(k, v) for k, v in entries["Service"].items() if k.startswith("Exec")]
    assert [k for k, v in commands if set(v.split("/")[0]) & set("+!|\"'\\")] == ["ExecCondition"]


def test_a_long_command_is_judged_in_linear_time() -> None:
    """A word that ends in an open quote is refused at once; trying every split would never end."""
    assert not COMMAND.accepts("/bin/x " + "a" * 4000 + '"')
    assert not UNITS.accepts("a" * 4000 + " !")
