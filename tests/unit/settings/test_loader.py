"""Settings: defaults, the file, variables, and the sentence about each mistake."""

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.install.compilation import gateway_configuration
from appliance.model.errors import SettingsError
from appliance.model.gateway import Configuration, Limits
from appliance.settings.loader import SETTINGS_FILE, as_table, load_settings
from appliance.settings.tables import Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty settings file."""
    path = tmp_path / "appliance.toml"
    path.touch()
    return path


def lines(file: Path, text: str, env: dict[str, str] | None = None) -> list[str]:
    """The lines of the error that `text` and `env` get, without the file's directory."""
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env or {})
    return str(caught.value).replace(f"{file.parent}/", "").splitlines()


def test_a_box_without_a_file_has_the_defaults(file: Path) -> None:
    """An empty file and no file mean the same."""
    assert load_settings(file, {}) == load_settings(None, {"APPLIANCE_SETTINGS": str(file)})
    defaults = load_settings(file, {})
    assert defaults.state_dir == Path("/var/lib/appliance")
    assert defaults.reserved_ports == {8010: "the gateway", 8011: "the status API"}


def test_a_variable_wins_over_the_file(file: Path) -> None:
    """The environment has the last word, for tables too."""
    file.write_text('log_level = "error"\nlook_every_s = "5s"\n[memory]\nmargin = "1GiB"\n')
    env = {
        "APPLIANCE_LOG_LEVEL": "debug",
        "APPLIANCE_MEMORY__MARGIN": "256MiB",
        "APPLIANCE_FOREIGN_UNITS": "vllm.service, ollama.service",
        "OTHER": "x",
    }
    found = load_settings(file, env)
    assert (found.log_level, found.look_every_s) == ("debug", 5.0)
    assert found.memory.margin == 256 << 20
    assert found.foreign_units == ("vllm.service", "ollama.service")


def test_the_settings_can_be_shown_as_text(file: Path) -> None:
    """Every value has a plain form that TOML and JSON hold."""
    assert as_table(load_settings(file, {}))["control_socket"] == "/run/appliance/control.sock"


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        (
            'a = 1\nstate_dirr = "/x"\n',
            {},
            [
                'appliance.toml:1: unknown key "a"',
                'appliance.toml:2: unknown key "state_dirr"; did you mean "state_dir"?',
            ],
        ),
        (
            '[memory]\nmargn = "1GiB"\n',
            {},
            ['appliance.toml:2: unknown key "margn"; did you mean "margin"?'],
        ),
        ("memory = 3\n", {}, ["appliance.toml:1: memory is a table, not 3"]),
        (
            'state_dir = "here"\n',
            {},
            ['appliance.toml:1: state_dir "here" is not an absolute path without ..'],
        ),
        (
            'foreign_units = ["vllm"]\n',
            {},
            [
                (
                    'appliance.toml:1: foreign_units, item 1, "vllm" is not the name of a unit, '
                    "such as vllm.service"
                )
            ],
        ),
        (
            'look_every_s = "0s"\n',
            {},
            ['appliance.toml:1: look_every_s is at least 0.1, not "0s"'],
        ),
        ("a = \n", {}, ["appliance.toml:1: not TOML: invalid value"]),
        (
            'log_level = "infoo"\n',
            {},
            [
                (
                    'appliance.toml:1: log_level is "debug", "info", "warning" or "error", not '
                    '"infoo"; did you mean "info"?'
                )
            ],
        ),
        *(
            (f'[web]\nlisten = ["{place}"]\n', {}, [f"appliance.toml:2: web.listen, item 1, {why}"])
            for place, why in (
                ("0.0.0.0", '"0.0.0.0" is a wildcard: list the addresses to listen on'),  # noqa: S104
                ("::", '"::" is a wildcard: list the addresses to listen on'),
                ("fe80::1", '"fe80::1" cannot be listened on: list its interface in place of it'),
                ("wg0", '"wg0" is no address; of an interface list the addresses'),
                ("10.0.1", '"10.0.1" is neither an address nor an interface'),
            )
        ),
        (
            "",
            {"APPLIANCE_LOG_LEVL": "info"},
            ['APPLIANCE_LOG_LEVL: no such setting; did you mean "APPLIANCE_LOG_LEVEL"?'],
        ),
        (
            "",
            {"APPLIANCE_GATEWAY__PORT": "80"},
            ['APPLIANCE_GATEWAY__PORT="80": gateway.port is at least 1024'],
        ),
        (
            "",
            {"APPLIANCE_MEMORY": "x"},
            ['APPLIANCE_*: error parsing value for field "memory" from source "EnvSettingsSource"'],
        ),
    ],
)
def test_a_mistake_names_its_place(
    file: Path, text: str, env: dict[str, str], expected: list[str]
) -> None:
    """File and line, or the variable, with a suggestion."""
    assert lines(file, text, env) == expected


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    """Only the default file may be missing."""
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "none.toml", {})


def test_variables_of_others_are_left_alone(file: Path) -> None:
    """Only what looks like one of our settings can be one written wrongly."""
    env = {"APPLIANCE_RIG_DIR": "/x", "APPLIANCE_TESTS_REQUIRE_SYSTEM": "1", "APPLIANCE_": "x"}
    assert load_settings(file, env) == load_settings(file, {})


def test_every_setting_is_described() -> None:
    """No setting without a sentence for the reference."""
    assert all(field.description for field in SETTINGS_FILE.model_fields.values())


@pytest.mark.parametrize(
    "modules",
    [
        "appliance.model.spec, appliance.model.profile, appliance.model.amounts",
        "appliance.engines, appliance.profiles.compilation, appliance.profiles.rules",
        "appliance.system.applied.manifest",
        "appliance.supervisor.process",
    ],
)
def test_what_must_start_quickly_or_stay_small_imports_no_pydantic(modules: str) -> None:
    """The core, the manifest and the daemons cost no schema library, and no editor of TOML."""
    check = (
        f"import sys, {modules}; sys.exit(not {{'pydantic', 'tomlkit'}}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def fault(directory: Path, text: str) -> str:
    """The error of a settings file with this text."""
    file = directory / "appliance.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file, {})
    return str(caught.value)


def test_alerts_and_watches_arrive(tmp_path: Path) -> None:
    """Alerts and watches of a file are as it says, durations in seconds."""
    file = tmp_path / "appliance.toml"
    file.write_text(
        '[alerts]\ntime_zone = "Europe/Rome"\nquiet_hours = "22:00-07:00"\nbox_silent_after = "10m"\n'
        'button_url = "https://box.example:8443"\n'
        '[[watch]]\nname = "nas"\nurl = "http://192.0.2.7:9000/live"\nevery = "1m"\n'
        '[[watch]]\nname = "ssh"\nunit = "ssh.service"\nmark = "standby"\n'
    )
    loaded = load_settings(file, {})
    assert loaded.alerts.time_zone == "Europe/Rome"
    assert loaded.alerts.quiet_hours == "22:00-07:00"
    assert loaded.alerts.box_silent_after == 600.0
    assert loaded.alerts.button_url == "https://box.example:8443"
    assert [(one.name, one.url, one.unit, one.mark, one.every) for one in loaded.watch] == [
        ("nas", "http://192.0.2.7:9000/live", None, "live", 60.0),
        ("ssh", None, "ssh.service", "standby", 30.0),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[alerts]\ntime_zone = "No/Where"', "is not a time zone such as Europe/Rome"),
        ('[alerts]\ntime_zone = "../../etc/passwd"', "is not a time zone"),
        ('[alerts]\nquiet_hours = "22-7"', "is not a span of local time such as 22:00-07:00"),
        ('[alerts]\nquiet_hours = "24:00-07:00"', "is not a span of local time"),
        ('[alerts]\nbox_silent_after = "1s"', "box_silent_after"),
        ('[alerts]\nbutton_url = "ftp://box.example"', "is not a URL such as"),
        ('[[watch]]\nname = "a"', "either a url or a unit"),
        (
            '[[watch]]\nname = "a"\nurl = "http://a.example"\nunit = "a.service"',
            "either a url or a unit",
        ),
        (
            '[[watch]]\nname = "a"\nunit = "a.service"\nmark = "liv"',
            'is "live", "standby" or "retired", not "liv"; did you mean "live"?',
        ),
        ('[[watch]]\nname = "A b"\nunit = "a.service"', "is not a name of small letters"),
        ('[[watch]]\nname = "a"\nunit = "a"', "is not the name of a unit"),
        ('[[watch]]\nname = "a"\nunit = "../a.service"', "is not the name of a unit"),
        ('[[watch]]\nname = "a"\nurl = "http://ana:secret@a.example/"', "takes no credential"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example:0/"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example:99999/"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "file:///etc/passwd"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://a.example/a b"', "is not a URL"),
        ('[[watch]]\nname = "a"\nurl = "http://[::1"', "is not a URL"),
        (
            '[[watch]]\nname = "a"\nunit = "a.service"\n[[watch]]\nname = "a"\nunit = "b.service"',
            "names two entries alike",
        ),
    ],
)
def test_a_mistake_in_alerts_or_a_watch_names_its_fault(
    tmp_path: Path, text: str, expected: str
) -> None:
    """Each mistake is one line with the file, and what would be right."""
    told = fault(tmp_path, text)
    assert expected in told
    assert told.startswith(str(tmp_path))
    assert len(told.splitlines()) == 1


def test_a_credential_in_a_watched_address_is_not_repeated(tmp_path: Path) -> None:
    """The message about an address with a password does not show the password."""
    text = '[[watch]]\nname = "a"\nurl = "http://ana:hunter2@a.example/"'
    assert "hunter2" not in fault(tmp_path, text)


def with_gateway(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    """The settings that a file with `text` in ``[gateway]`` gives."""
    file = tmp_path / "appliance.toml"
    file.write_text(f"[gateway]\n{text}\n")
    return load_settings(file, env or {})


def test_the_defaults_are_those_of_a_gateway_without_a_file(tmp_path: Path) -> None:
    """The file that apply writes on an untouched box changes nothing."""
    assert gateway_configuration(with_gateway(tmp_path, "")) == Configuration()


def test_addresses_and_interfaces_are_told_apart(tmp_path: Path) -> None:
    """Addresses come in their shortest form, everything else is an interface's name."""
    text = 'listen = ["127.0.0.1", "FD00:0::1", "tailscale0", "br-lan.7", "10.10.10.1"]'
    found = gateway_configuration(with_gateway(tmp_path, text))
    assert found.addresses == ("127.0.0.1", "fd00::1", "10.10.10.1")
    assert found.interfaces == ("tailscale0", "br-lan.7")


def test_a_variable_lists_places(tmp_path: Path) -> None:
    """With commas or spaces between them, as for other lists."""
    env = {"APPLIANCE_GATEWAY__LISTEN": "::1, wg0", "APPLIANCE_GATEWAY__PORT": "9010"}
    found = with_gateway(tmp_path, "", env)
    assert found.gateway.listen == ("::1", "wg0")
    assert found.reserved_ports[9010] == "the gateway"


def test_settings_of_the_gateway_arrive_in_its_configuration(tmp_path: Path) -> None:
    """Limits, deadlines, keys and paths."""
    text = """
port = 9010
listen = ["127.0.0.1", "10.0.0.1", "wg0"]
tls_certificate = "/etc/tls/chain.pem"
tls_key = "/etc/tls/key.pem"
require_keys = "always"
allow_paths = ["/metrics", "/slots/*"]
names = ["Models.example.org"]
origins = ["https://Chat.example.org", "null"]
drain = "5m"
stop = 0
max_wait = "1m"
min_residency = "10m"
max_queue = 8
max_connections = 16
max_body = "1MiB"
max_buffered = "2MiB"
idle = "30s"
"""
    expected = Configuration(
        port=9010,
        addresses=("127.0.0.1", "10.0.0.1"),
        interfaces=("wg0",),
        tls=True,
        certificate="/etc/tls/chain.pem",
        keys_always=True,
        allow_paths=("/metrics", "/slots/*"),
        names=("models.example.org",),
        origins=("https://chat.example.org", "null"),
        drain_s=300.0,
        stop_s=0.0,
        min_residency_s=600.0,
        limits=Limits(
            body_bytes=1 << 20,
            buffered_bytes=2 << 20,
            connections=16,
            idle_s=30.0,
            queue=8,
            wait_s=60.0,
        ),
    )
    settings = with_gateway(tmp_path, text)
    assert gateway_configuration(settings) == expected
    own = gateway_configuration(settings).on_loopback()
    assert (own.addresses, own.interfaces, own.beyond_loopback()) == (("127.0.0.1",), (), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('listen = ["0.0.0.0"]', '"0.0.0.0" is a wildcard: list the addresses to listen on'),
        ('listen = ["::"]', '"::" is a wildcard: list the addresses to listen on'),
        ('listen = ["ff02::1"]', '"ff02::1" cannot be listened on'),
        ('listen = ["fe80::1%eth0"]', '"fe80::1%eth0" cannot be listened on'),
        ('listen = ["fe80::1"]', '"fe80::1" cannot be listened on'),
        ('listen = ["10.0.1"]', '"10.0.1" is neither an address nor an interface'),
        ('listen = ["a/b"]', '"a/b" is neither an address nor an interface'),
        ('listen = ["::1", "0::1"]', "lists an address or interface twice"),
        ("listen = []", "too few"),
        ('allow_paths = ["metrics"]', '"metrics" is not a path'),
        ('names = ["a b"]', '"a b" is not a host name'),
        ('names = ["http://a"]', '"http://a" is not a host name'),
        ('origins = ["chat.example.org"]', '"chat.example.org" is not an origin'),
        ('origins = ["https://a/b"]', '"https://a/b" is not an origin'),
        ('tls_key = "/k"', "needs both tls_certificate and tls_key, or neither"),
        ('max_body = "300MiB"', "max_buffered that is smaller than its max_body"),
        ("stop = 301", "at most 300"),
        ("port = 8011", "gateway has the port of the status API too (status_port): they need two"),
    ],
)
def test_a_mistake_in_the_gateways_table_names_its_fault(
    tmp_path: Path, text: str, expected: str
) -> None:
    """With its line, and never later than when the file is read."""
    with pytest.raises(SettingsError) as caught:
        with_gateway(tmp_path, text)
    assert expected in str(caught.value)
