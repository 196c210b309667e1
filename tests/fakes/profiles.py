"""Applied profiles for tests."""

from collections.abc import Mapping

from appliance.domain.claims import Claim
from appliance.domain.profile import Applied, Deadlines, Endpoint, Mark, Need, WarmUp


def applied(
    name: str,
    *devices: str,
    port: int = 9000,
    need: Need | None = None,
    mark: Mark = Mark.STANDBY,
    warm_up: WarmUp = WarmUp.COMPLETION,
) -> Applied:
    """A profile that claims `devices`; none: shared."""
    return Applied(
        name=name,
        description=f"test profile {name}",
        engine="command",
        model="",
        model_path=None,
        binary="/usr/bin/true",
        served=(name,),
        endpoint=Endpoint(port=port),
        health_path="/health",
        claim=Claim(devices=frozenset(devices)),
        need=need or Need(),
        deadlines=Deadlines(),
        warm_up=warm_up,
        first_mark=mark,
        source_path=f"/etc/appliance/profiles/{name}.toml",
        source_sha256="0" * 64,
    )


def catalogue(*profiles: Applied) -> Mapping[str, Applied]:
    """Profiles by name."""
    return {profile.name: profile for profile in profiles}
