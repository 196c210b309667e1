"""Compilation of the settings of gateway and status API for `appliance apply`, with the reasons for refusals.

Files with secrets are checked: modes of key files, and pairs of certificate and key.
"""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from stat import S_IROTH, S_ISREG

from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration, Limits
from appliance.model.names import GATEWAY_UNIT
from appliance.model.operators import Account, lapse_of
from appliance.model.paths import SETTINGS_FILE
from appliance.model.profile import Catalogue
from appliance.model.web_addresses import WebAddresses
from appliance.settings.tables import Settings
from appliance.settings.values import is_address
from appliance.switch.units.daemon_drop_ins import ENGINE_KEY, DaemonSpec
from appliance.system.credential_files import KEY_FILE, FileTokens, read_keys
from appliance.system.files.regular import read_small_file

_GATEWAY_CREDENTIALS = Path("/run/credentials") / GATEWAY_UNIT
_MOST_CREDENTIAL_BYTES = 1 << 20
"""Limit of a credential of systemd."""
_SOME_PASSWORD = "none"  # noqa: S105 - so that an encrypted key fails instead of asking the terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGateway:
    """Settings of the gateway as they may be installed."""

    spec: DaemonSpec
    errors: tuple[str, ...] = ()
    """Reasons why the gateway does not listen for other machines although the settings say so."""
    warnings: tuple[str, ...] = ()


def compile_gateway(settings: Settings) -> CompiledGateway:
    """Compile the gateway's settings for this box as it is now.

    Beyond loopback it listens only when a key exists, and never in the clear: a certificate that
    cannot be used closes those addresses too.
    """
    wanted = gateway_configuration(settings)
    errors: tuple[str, ...] = ()
    if beyond := wanted.beyond_loopback():
        errors = tuple(_obstacles(settings, beyond[0]))
    certificate, key = settings.gateway.tls_certificate, settings.gateway.tls_key
    closed = bool(errors)
    return CompiledGateway(
        spec=DaemonSpec(
            configuration=wanted.on_loopback() if closed else wanted,
            certificate="" if closed else certificate or "",
            certificate_key="" if closed else key or "",
            source=SETTINGS_FILE,
        ),
        errors=errors,
        warnings=tuple(_warnings(settings, needed=wanted.keys_always)),
    )


def gateway_configuration(settings: Settings) -> Configuration:
    """Return the configuration that the gateway reads, with all addresses that the settings list."""
    gateway = settings.gateway
    addresses = tuple(text for text in gateway.listen if is_address(text))
    return Configuration(
        port=gateway.port,
        addresses=addresses,
        interfaces=tuple(text for text in gateway.listen if text not in addresses),
        tls=gateway.tls_certificate is not None,
        certificate=gateway.tls_certificate or "",
        keys_always=gateway.require_keys == "always",
        limits=Limits(
            body_bytes=gateway.max_body,
            buffered_bytes=gateway.max_buffered,
            connections=gateway.max_connections,
            idle_s=gateway.idle,
            queue=gateway.max_queue,
            wait_s=gateway.max_wait,
        ),
        drain_s=gateway.drain,
        stop_s=gateway.stop,
        min_residency_s=gateway.min_residency,
        allow_paths=gateway.allow_paths,
        names=gateway.names,
        origins=gateway.origins,
        state_dir=str(settings.state_dir),
        request_socket=str(settings.request_socket),
        log_level=settings.log_level,
    )


def engine_key_warnings(
    catalogue: Catalogue, credentials: Path = _GATEWAY_CREDENTIALS
) -> Iterator[str]:
    """Yield a sentence for each profile whose engine's key cannot be handed over, or is another one than was.

    Args:
        catalogue: The applied profiles.
        credentials: Directory of the credentials with which the gateway runs, if it has any.
    """
    for name, applied in sorted(catalogue.items()):
        file = applied.handling.engine_key_file
        if file is None:
            continue
        if problem := secret_problem(Path(file)):
            yield f"{name}: the engine's key: {problem}"
        elif credentials.is_dir() and _bytes_of(credentials / f"{ENGINE_KEY}{name}") != _bytes_of(
            Path(file)
        ):
            yield (
                f"{name}: the gateway has the engine's key of {file} after a restart:"
                f" sudo systemctl restart {GATEWAY_UNIT}"
            )


def _bytes_of(file: Path) -> bytes | None:
    try:
        return read_small_file(file, _MOST_CREDENTIAL_BYTES, follow_links=True)
    except OSError:
        return None


def _obstacles(settings: Settings, place: str) -> Iterator[str]:
    if not _any_key(settings):
        yield (
            f'the gateway stays on this machine: "{place}" in gateway.listen is beyond it, and there'
            " is no key yet: appliance key add NAME, then sudo appliance apply"
        )
    certificate, key = settings.gateway.tls_certificate, settings.gateway.tls_key
    if certificate is None or key is None:
        return
    if problem := certificate_problem(Path(certificate), Path(key)):
        yield f"the gateway stays on this machine: {problem}"


def _warnings(settings: Settings, *, needed: bool) -> Iterator[str]:
    if needed and not _any_key(settings):
        yield 'no client can use the gateway: gateway.require_keys is "always", and there is no key yet'
    key = settings.gateway.tls_key
    if key is not None and Path(key).exists() and (problem := secret_problem(Path(key))):
        yield problem


def _any_key(settings: Settings) -> bool:
    try:
        return bool(read_keys(settings.state_dir / KEY_FILE))
    except StoreError:
        return False


def secret_problem(path: Path) -> str | None:
    """Return the fault of a file that only root should read, as a phrase; None: none."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not S_ISREG(mode):
        return f"{path} is no regular file"
    if mode & S_IROTH:
        return f"every user can read {path}: chmod 600 {path}"
    return None


def certificate_problem(certificate: Path, key: Path) -> str | None:
    """Return why a certificate and its key cannot be used, as a phrase; None: they can."""
    for path in (certificate, key):
        if not path.is_file():
            return f"{path} does not exist"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_SOME_PASSWORD)
    except ssl.SSLError as error:
        words = (error.reason or "no PEM data").replace("_", " ").lower()
        return f"{certificate} and {key} do not make a pair that can be used ({words})"
    except OSError as error:
        return f"{certificate} and {key} cannot be read: {error.strerror}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledWeb:
    """Addresses of the status API as they may be installed."""

    addresses: WebAddresses
    errors: tuple[str, ...] = ()
    """Reasons why other machines do not reach it although the settings say so."""


def compile_web(
    settings: Settings, *, account_of_uid: Callable[[int], Account | None], now_unix_s: float
) -> CompiledWeb:
    """Compile the addresses for this box as it is now: beyond loopback only where a token would be accepted.

    Args:
        settings: Of this box.
        account_of_uid: Returns a user of this machine by number; None: there is none.
        now_unix_s: The wall clock.
    """
    wanted = WebAddresses(port=settings.status_port, addresses=tuple(settings.web.listen))
    beyond = wanted.beyond_loopback()
    if not beyond or _is_any_usable(settings, account_of_uid, now_unix_s):
        return CompiledWeb(addresses=wanted)
    error = (
        f'the status API stays on this machine: "{beyond[0]}" in web.listen is beyond it, and no operator'
        " has a token: appliance token add NAME, then sudo appliance apply"
    )
    return CompiledWeb(addresses=wanted.on_loopback(), errors=(error,))


def _is_any_usable(
    settings: Settings, account_of_uid: Callable[[int], Account | None], now_unix_s: float
) -> bool:
    try:
        tokens = FileTokens(settings.state_dir).all()
    except StoreError:
        return False
    return any(lapse_of(one.token, account_of_uid, now_unix_s) is None for one in tokens)
