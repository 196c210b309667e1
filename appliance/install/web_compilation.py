"""Compilation of the addresses of the status API for `appliance apply`, with the reason for a refusal."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.model.errors import StoreError
from appliance.model.operators import Account, lapse_of
from appliance.model.web_addresses import WebAddresses
from appliance.settings.schema import Settings
from appliance.system.token_file import FileTokens


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
