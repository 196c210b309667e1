"""Drop-ins of daemons: where they listen, and which secrets the gateway is handed."""

import pytest

from appliance.model.gateway import Configuration
from appliance.model.profile import Catalogue, Handling
from appliance.model.web_addresses import WebAddresses
from appliance.switch.units.daemon_drop_ins import (
    SERVICE_DROP_IN,
    SOCKET_DROP_IN,
    WEB_DROP_IN,
    DaemonSpec,
    daemon_drop_ins,
)
from appliance.switch.units.text import seal_holds, sealed_body
from tests.fakes.unit_specs import made


def body(file: str, spec: DaemonSpec, catalogue: Catalogue | None = None) -> list[str]:
    """The lines of a drop-in below its header."""
    text = daemon_drop_ins(spec, catalogue or {}, "1.2.3")[file]
    assert seal_holds(text)
    return (sealed_body(text) or "").splitlines()


@pytest.mark.parametrize(
    "configuration",
    [Configuration(), Configuration(interfaces=("wg0",)), Configuration(stop_s=1.0)],
    ids=["the defaults", "an interface", "limits"],
)
def test_the_usual_address_needs_no_file(configuration: Configuration) -> None:
    """Interfaces neither: the process listens there itself, when they come."""
    assert daemon_drop_ins(DaemonSpec(configuration=configuration), {"m": made("m")}, "1") == {}


def test_the_socket_listens_where_it_is_told_to() -> None:
    """The unit's own addresses are taken away first; the supervisor's way in is put back."""
    spec = DaemonSpec(configuration=Configuration(port=9010, addresses=("127.0.0.1", "fd00::1")))
    assert body(SOCKET_DROP_IN, spec) == [
        "[Socket]",
        "ListenStream=",
        "ListenStream=127.0.0.1:9010",
        "ListenStream=[fd00::1]:9010",
        "ListenStream=/run/appliance/gateway.sock",
    ]


def test_the_page_listens_where_it_is_told_to() -> None:
    """The filter of its unit, which lets this machine alone in, is opened only where others are to come."""
    spec = DaemonSpec(web=WebAddresses(port=8012, addresses=("127.0.0.1", "100.64.0.7", "fd00::1")))
    assert body(WEB_DROP_IN, spec) == [
        "[Socket]",
        "ListenStream=",
        "ListenStream=127.0.0.1:8012",
        "ListenStream=100.64.0.7:8012",
        "ListenStream=[fd00::1]:8012",
        "ListenNetlink=inet-diag",
        "IPAddressAllow=any",
    ]
    assert body(WEB_DROP_IN, DaemonSpec(web=WebAddresses(port=8012))) == [
        "[Socket]",
        "ListenStream=",
        "ListenStream=127.0.0.1:8012",
        "ListenStream=[::1]:8012",
        "ListenNetlink=inet-diag",
    ]


def test_secrets_are_handed_over_by_systemd() -> None:
    """Paths only, each with something that stands in for a file that is missing."""
    catalogue = {
        "a": made("a", handling=Handling(engine_key_file="/etc/keys/100%")),
        "b": made("b"),
    }
    spec = DaemonSpec(certificate="/etc/tls/chain.pem", certificate_key="/etc/tls/key.pem")
    assert body(SERVICE_DROP_IN, spec, catalogue) == [
        "[Service]",
        "LoadCredential=tls.crt:/etc/tls/chain.pem",
        "SetCredential=tls.crt:-",
        "LoadCredential=tls.key:/etc/tls/key.pem",
        "SetCredential=tls.key:-",
        "LoadCredential=engine-key.a:/etc/keys/100%%",
        "SetCredential=engine-key.a:-",
        "SetCredential=engine-key-file.a:/etc/keys/100%%",
    ]
