"""Files for the daemons: drop-ins of their units, and the rule of polkit for the supervisor.

Drop-ins hold the addresses of the gateway and of the status API, and the gateway's credentials. A box that
listens on the usual addresses, without TLS and engine keys, needs none. Sources: systemd.socket(5) for
ListenStream=, systemd.exec(5) for credentials, systemd.resource-control(5) for IPAddressAllow=.

The rule names the units that the supervisor may keep loaded. It allows no jobs: polkit does not know
their mode, and some modes reach other units (launch.jobs).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from json import dumps
from typing import Final

from appliance.model.gateway import Configuration
from appliance.model.names import (
    GATEWAY_SOCKET_UNIT,
    GATEWAY_UNIT,
    HOLD_UNIT,
    RUN_UNIT,
    SUPERVISOR_USER,
    WEB_SOCKET_UNIT,
    unit_of,
)
from appliance.model.paths import GATEWAY_SOCKET, POLKIT_RULE, SETTINGS_FILE
from appliance.model.profile import Catalogue
from appliance.model.web_addresses import WebAddresses
from appliance.switch.units.text import Section, sealed, text_of

SOCKET_DROP_IN: Final = f"{GATEWAY_SOCKET_UNIT}.d/50-applied.conf"
SERVICE_DROP_IN: Final = f"{GATEWAY_UNIT}.d/50-applied.conf"
WEB_DROP_IN: Final = f"{WEB_SOCKET_UNIT}.d/50-applied.conf"
GATEWAY_FILES: Final = frozenset({SOCKET_DROP_IN, SERVICE_DROP_IN})
DAEMON_FILES: Final = GATEWAY_FILES | {WEB_DROP_IN}
KERNEL_SOCKET: Final = "inet-diag"
"""Family of netlink by which the web process learns whose a connection is (sock_diag(7))."""
CERTIFICATE: Final = "tls.crt"
CERTIFICATE_KEY: Final = "tls.key"
ENGINE_KEY: Final = "engine-key."
ENGINE_KEY_FILE: Final = "engine-key-file."
"""Names of credentials; a profile's name follows the last two, of which the second is the path of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSpec:
    """Settings that the drop-ins are made from."""

    configuration: Configuration = field(default_factory=Configuration)
    certificate: str = ""
    """Path of the PEM file; empty: no TLS."""
    certificate_key: str = ""
    web: WebAddresses = field(default_factory=WebAddresses)
    source: str = SETTINGS_FILE
    """Path of the settings file, for the header."""


def daemon_drop_ins(spec: DaemonSpec, catalogue: Catalogue, version: str) -> Mapping[str, str]:
    """Return the drop-ins that are needed, by file name.

    Args:
        spec: The settings.
        catalogue: The profiles that are installed.
        version: The release that writes them.
    """
    bodies = {
        SOCKET_DROP_IN: _socket(spec.configuration),
        SERVICE_DROP_IN: _service(_credentials(spec, catalogue)),
        WEB_DROP_IN: _web_socket(spec.web),
    }
    return {
        file: sealed(text_of([section]), source=spec.source, version=version, adoptable=False)
        for file, section in bodies.items()
        if section is not None
    }


def _socket(configuration: Configuration) -> Section | None:
    usual = Configuration()
    if (configuration.port, configuration.addresses) == (usual.port, usual.addresses):
        return None
    # The path of the supervisor's way in is removed with the unit's own addresses, and restored here.
    places = *_places(configuration.addresses, configuration.port), GATEWAY_SOCKET
    return Section(name="Socket", entries=_listening(places))


def _web_socket(addresses: WebAddresses) -> Section | None:
    if addresses == WebAddresses():
        return None
    # The empty entry removes the unit's own socket to the kernel, too.
    kernel = ("ListenNetlink", KERNEL_SOCKET)
    entries = *_listening(_places(addresses.addresses, addresses.port)), kernel
    # The unit's own filter lets this machine alone in, whatever else a person has it listen on.
    filters = (("IPAddressAllow", "any"),) if addresses.beyond_loopback() else ()
    return Section(name="Socket", entries=(*entries, *filters))


def _listening(places: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the entries for `places`, after an empty one that removes the unit's own."""
    return tuple(("ListenStream", place) for place in ("", *places))


def _places(addresses: Iterable[str], port: int) -> tuple[str, ...]:
    return tuple(
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in addresses
    )


def _credentials(spec: DaemonSpec, catalogue: Catalogue) -> Mapping[str, str]:
    """Return the paths of credentials by credential."""
    found = {CERTIFICATE: spec.certificate, CERTIFICATE_KEY: spec.certificate_key}
    for name, applied in sorted(catalogue.items()):
        found[ENGINE_KEY + name] = applied.handling.engine_key_file or ""
    return {name: path for name, path in found.items() if path}


def _service(credentials: Mapping[str, str]) -> Section | None:
    if not credentials:
        return None
    entries: list[tuple[str, str]] = []
    for name, path in credentials.items():
        entries.append(("LoadCredential", f"{name}:{path.replace('%', '%%')}"))
        # Empty credential in place of a missing file, without which the gateway would not start.
        entries.append(("SetCredential", f"{name}:-"))
        if name.startswith(ENGINE_KEY):
            text = path.replace("\\", "\\\\").replace("%", "%%")
            profile = name.removeprefix(ENGINE_KEY)
            entries.append(("SetCredential", f"{ENGINE_KEY_FILE}{profile}:{text}"))
    return Section(name="Service", entries=tuple(entries))


RULE_FILE: Final = POLKIT_RULE.rpartition("/")[2]
_VERBS: Final = ("ref",)
_RULE: Final = """\
var UNITS = {units};
var VERBS = {verbs};

polkit.addRule(function(action, subject) {{
  if (action.id === "org.freedesktop.systemd1.manage-units" &&
      subject.user === {user} &&
      UNITS.indexOf(action.lookup("unit")) >= 0 &&
      VERBS.indexOf(action.lookup("verb")) >= 0) {{
    return polkit.Result.YES;
  }}
}});
"""


def polkit_rule(
    profiles: Iterable[str], *, source: str, version: str, user: str = SUPERVISOR_USER
) -> str:
    """Return the rule for `user` on the backends of `profiles`, the hold and the run.

    Names are exact: newer systemd asks with the same action when a transient unit is made, so
    that a prefix would let the daemon run anything as root.
    """
    units = [*sorted(map(unit_of, profiles)), HOLD_UNIT, RUN_UNIT]
    body = _RULE.format(units=dumps(units, indent=2), verbs=dumps(_VERBS), user=dumps(user))
    return sealed(body, source=source, version=version, comment="//", adoptable=False)
