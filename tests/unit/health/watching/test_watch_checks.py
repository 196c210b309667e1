"""Looks at the `[[watch]]` entries."""

from dataclasses import replace

import pytest

from appliance.alerts.snapshot import UnitLook, WatchLook
from appliance.health.watching.watch_checks import UrlAnswer, WatchChecks, ask_no_url
from appliance.model.observed import ActiveState
from appliance.model.words import Mark
from appliance.settings.tables import WatchSettings
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

NAS = WatchSettings(name="nas", url="http://nas/", unit=None, mark=Mark.LIVE, every=30.0)
OLD = WatchSettings(name="old", url=None, unit="vllm.service", mark=Mark.STANDBY, every=30.0)


class Nas:
    """Service on another machine."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: UrlAnswer | None = UrlAnswer(is_up=True)

    async def ask(self, url: str, _timeout_s: float) -> UrlAnswer | None:
        """Answer as it is now."""
        self.asked.append(url)
        return self.answer


async def test_a_url_is_asked_at_its_pace_and_again_while_it_is_down() -> None:
    """An answer serves for its period; a failure is looked at anew each time."""
    nas = Nas()
    checks = WatchChecks([NAS, OLD], nas.ask, VirtualHealthClock())
    for _ in range(3):
        assert await checks.urls() == {"nas": UrlAnswer(is_up=True)}
        await advance(9.0)
    assert nas.asked == ["http://nas/"]
    nas.answer = UrlAnswer(is_up=False, detail="status 503")
    await advance(10.0)
    for _ in range(3):
        await checks.urls()
        await advance(9.0)
    assert len(nas.asked) == 4
    urls = await checks.urls()
    assert replace(checks.looks({}, urls, {})[0], read_s=None) == WatchLook(
        name="nas", mark=Mark.LIVE, is_up=False, detail="status 503", host="nas"
    )


@pytest.mark.parametrize(
    ("unit", "is_up", "detail"),
    [
        (UnitLook(unit="vllm.service", active=ActiveState.ACTIVE, sub="running"), True, ""),
        (UnitLook(unit="vllm.service", active=ActiveState.RELOADING, sub="reload"), True, ""),
        (
            UnitLook(unit="vllm.service", active=ActiveState.FAILED, sub="failed"),
            False,
            "vllm.service is failed (failed)",
        ),
    ],
)
async def test_a_unit_is_up_while_it_is_active(*, unit: UnitLook, is_up: bool, detail: str) -> None:
    """The state of a unit is that of systemd."""
    checks = WatchChecks([OLD], ask_no_url, VirtualHealthClock())
    assert checks.units() == ("vllm.service",)
    (look,) = checks.looks({"vllm.service": unit}, {}, {"old": "retired"})
    assert look == WatchLook(name="old", mark=Mark.RETIRED, is_up=is_up, detail=detail)


async def test_what_cannot_be_asked_is_unknown() -> None:
    """Without systemd or a checker an entry is neither up nor down; a mark that is none is not taken."""
    checks = WatchChecks([NAS, OLD], ask_no_url, VirtualHealthClock())
    looks = checks.looks(None, await checks.urls(), {"nas": "loud"})
    assert [(look.name, look.mark, look.is_up) for look in looks] == [
        ("nas", Mark.LIVE, None),
        ("old", Mark.STANDBY, None),
    ]
    assert [look.is_up for look in checks.looks({}, {}, {})] == [None, None]
