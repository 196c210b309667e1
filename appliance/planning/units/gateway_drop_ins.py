"""Drop-ins for the gateway's units: addresses of its socket, and its credentials.

Sources: systemd.socket(5) for ListenStream=, systemd.exec(5) for credentials. A box that listens
on the usual address, without TLS and engine keys, needs neither file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from appliance.domain.gateway import Configuration
from appliance.domain.names import GATEWAY_SOCKET_UNIT, GATEWAY_UNIT
from appliance.domain.paths import GATEWAY_SOCKET, SETTINGS_FILE
from appliance.domain.profile import Catalogue
from appliance.planning.units.text import Section, sealed, text_of

SOCKET_DROP_IN: Final = f"{GATEWAY_SOCKET_UNIT}.d/50-applied.conf"
SERVICE_DROP_IN: Final = f"{GATEWAY_UNIT}.d/50-applied.conf"
GATEWAY_FILES: Final = frozenset({SOCKET_DROP_IN, SERVICE_DROP_IN})
CERTIFICATE: Final = "tls.crt"
CERTIFICATE_KEY: Final = "tls.key"
ENGINE_KEY: Final = "engine-key."
"""Names of credentials; a profile's name follows the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySpec:
    """Settings that the gateway's drop-ins are made from."""

    configuration: Configuration = field(default_factory=Configuration)
    certificate: str = ""
    """Path of the PEM file; empty: no TLS."""
    certificate_key: str = ""
    source: str = SETTINGS_FILE
    """Path of the settings file, for the header."""


def gateway_units(spec: GatewaySpec, catalogue: Catalogue, version: str) -> Mapping[str, str]:
    """Return the drop-ins that are needed, by file name.

    Args:
        spec: The settings.
        catalogue: The profiles that are installed.
        version: The release that writes them.
    """
    bodies = {
        SOCKET_DROP_IN: _socket(spec.configuration),
        SERVICE_DROP_IN: _service(_credentials(spec, catalogue)),
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
    # The empty assignment removes the unit's own addresses, and with them the path that is restored
    # here.
    listened = ["", *(_place(a, configuration.port) for a in configuration.addresses)]
    entries = (("ListenStream", place) for place in (*listened, GATEWAY_SOCKET))
    return Section(name="Socket", entries=tuple(entries))


def _place(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _credentials(spec: GatewaySpec, catalogue: Catalogue) -> Mapping[str, str]:
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
    return Section(name="Service", entries=tuple(entries))
