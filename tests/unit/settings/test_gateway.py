"""``[gateway]`` of the settings: what may be listened on, and what it is compiled to."""

from pathlib import Path

import pytest

from appliance.model.errors import SettingsError
from appliance.model.gateway import Configuration, Limits
from appliance.settings.schema import Settings, load_settings


def loaded(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Settings:
    """The settings that a file with `text` in ``[gateway]`` gives."""
    file = tmp_path / "appliance.toml"
    file.write_text(f"[gateway]\n{text}\n")
    return load_settings(file, env or {})


def compiled(settings: Settings, *, loopback_only: bool = False) -> Configuration:
    """Return the configuration that the gateway would read."""
    return settings.gateway.compiled(
        state_dir=settings.state_dir,
        request_socket=settings.control_socket.with_name("request.sock"),
        log_level=settings.log_level,
        loopback_only=loopback_only,
    )


def test_the_defaults_are_those_of_a_gateway_without_a_file(tmp_path: Path) -> None:
    """The file that apply writes on an untouched box changes nothing."""
    assert compiled(loaded(tmp_path, "")) == Configuration()


def test_addresses_and_interfaces_are_told_apart(tmp_path: Path) -> None:
    """Addresses come in their shortest form, everything else is an interface's name."""
    text = 'listen = ["127.0.0.1", "FD00:0::1", "tailscale0", "br-lan.7", "10.10.10.1"]'
    found = compiled(loaded(tmp_path, text))
    assert found.addresses == ("127.0.0.1", "fd00::1", "10.10.10.1")
    assert found.interfaces == ("tailscale0", "br-lan.7")


def test_a_variable_lists_places(tmp_path: Path) -> None:
    """With commas or spaces between them, as for other lists."""
    env = {"APPLIANCE_GATEWAY__LISTEN": "::1, wg0", "APPLIANCE_GATEWAY__PORT": "9010"}
    found = loaded(tmp_path, "", env)
    assert found.gateway.listen == ["::1", "wg0"]
    assert found.reserved_ports[9010] == "the gateway"


def test_every_setting_arrives(tmp_path: Path) -> None:
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
    settings = loaded(tmp_path, text)
    assert compiled(settings) == expected
    own = compiled(settings, loopback_only=True)
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
def test_a_mistake_is_said(tmp_path: Path, text: str, expected: str) -> None:
    """With its line, and never later than when the file is read."""
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text)
    assert expected in str(caught.value)
