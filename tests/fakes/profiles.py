"""Applied profiles for tests."""

from collections.abc import Mapping, Sequence
from typing import Literal

from appliance.model.claims import ALL_GPUS, CPU, Claim
from appliance.model.profile import Applied, Catalogue, Deadlines, Endpoint, Need, WarmUp
from appliance.model.words import Mark


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
        fingerprint=f"fingerprint of {name}",
        gpus=_gpus(devices),
    )


def _gpus(devices: Sequence[str]) -> Literal["all"] | tuple[int, ...]:
    if ALL_GPUS in devices:
        return "all"
    return tuple(int(d.removeprefix("gpu-")) for d in devices if d != CPU)


def catalogue(*profiles: Applied) -> Mapping[str, Applied]:
    """Profiles by name."""
    return {profile.name: profile for profile in profiles}


class FakeProfiles:
    """The port `Profiles`."""

    def __init__(self, applied: Catalogue, damage: str | None = None) -> None:
        self.applied = applied
        self.damage = damage

    def load(self) -> Catalogue:
        return self.applied
