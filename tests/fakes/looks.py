"""Looks of the watchdog at a box on which all is well, and what is wrong with it by arguments."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from appliance.alerts.rules import findings
from appliance.alerts.snapshot import (
    BoxLook,
    DiskLook,
    GpuLook,
    ProfileLook,
    UnitLook,
    WatchLook,
)
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.alerts import AlertRule, Finding, Sign
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT, unit_of
from appliance.model.observed import ActiveState
from appliance.model.speeds import SeriesSpeed, SpeedReport
from appliance.model.status import EndedOperationRow
from appliance.model.words import Mark, Series

NOW: Final = 1_800_000_000.0
STARTED_S: Final = 5000.0
"""Monotonic time of the first look."""
CARD: Final = "GPU-1"
GIB: Final = 1 << 30


def unit_look(name: str, **changes: Any) -> UnitLook:
    """Return a unit that is active, with a filter that is enforced."""
    unit = UnitLook(
        unit=name, active=ActiveState.ACTIVE, sub="running", main_pid=100, is_filtered=True
    )
    return replace(unit, **changes)


def speed_look(**changes: Any) -> SpeedReport:
    """Return a report of a profile that is as fast as ever."""
    decode = SeriesSpeed(series=Series.DECODE, phase="healthy", rate=41.0, baseline=41.0)
    report = SpeedReport(
        profile="genesis", series=(decode,), last_valid_unix_s=NOW, quality_pass_rate=1.0
    )
    return report.replaced(**changes)


def profile_look(name: str = "genesis", **changes: Any) -> ProfileLook:
    """Return a live profile that serves, as it should."""
    profile = ProfileLook(
        name=name,
        mark=Mark.LIVE,
        desired=True,
        state="serving",
        unit=unit_look(unit_of(name)),
        answers=True,
        in_flight=0,
        idle_s=3.0,
        is_on_gpu=True,
        held_bytes=11 * GIB,
        needs_bytes=12 * GIB,
        patch_applied=True,
        drift=(),
        speed=speed_look(),
        gpus=(CARD,),
    )
    return replace(profile, **changes)


def gpu_look(**changes: Any) -> GpuLook:
    """Return a GPU under load."""
    gpu = GpuLook(
        uuid=CARD,
        index=0,
        name="RTX 3090",
        errors=(),
        recovery_action="none",
        uncorrected_errors=0,
        remap_pending=False,
        remap_failed=False,
        throttle_reasons=("sw_power_cap",),
        temperature_c=66,
        power_w=300.0,
        busy_share=0.97,
        memory_busy_share=0.6,
        pcie_width=16,
        holders=(),
        unattributed_bytes=200 << 20,
    )
    return replace(gpu, **changes)


def box_look(*profiles: ProfileLook, **changes: Any) -> BoxLook:
    """Return a box on which all is well; with the profile genesis unless others are given."""
    look = BoxLook(
        unix_s=NOW,
        monotonic_s=STARTED_S,
        supervisor_answers=True,
        supervisor=unit_look(SUPERVISOR_UNIT, is_filtered=None),
        gateway=unit_look(GATEWAY_UNIT, is_filtered=None),
        gateway_answers=True,
        last_operation=EndedOperationRow(
            id=7,
            kind="switch",
            target=("genesis",),
            outcome="done",
            failed=False,
            finished_unix_s=NOW - 3600,
        ),
        profiles={profile.name: profile for profile in profiles or (profile_look(),)},
        gpus=(gpu_look(),),
        gpu_state="ok",
        listeners=(),
        watches=(WatchLook(name="wiki", mark=Mark.LIVE, is_up=True),),
        disks=(DiskLook(path="/var/lib/appliance", free_bytes=80 * GIB, total_bytes=100 * GIB),),
    )
    return replace(look, **changes)


def later(look: BoxLook, seconds: float, **changes: Any) -> BoxLook:
    """Return the same look at a later time."""
    return replace(
        look, unix_s=look.unix_s + seconds, monotonic_s=look.monotonic_s + seconds, **changes
    )


def looked(looks: Iterable[BoxLook], memory: WatchdogMemory | None = None) -> list[Finding]:
    """Return the findings at the last of several looks."""
    found: list[Finding] = []
    memory = memory or WatchdogMemory()
    for look in looks:
        told, memory = findings(look, memory)
        found = list(told)
    return found


def of_rule(found: Iterable[Finding], rule: AlertRule) -> Mapping[str, Finding]:
    """Return the findings of a rule by the text of their subject."""
    return {one.subject.text: one for one in found if one.rule is rule}


def signs_of(found: Iterable[Finding], rule: AlertRule) -> Mapping[str, Sign]:
    """Return the judgements of a rule by the text of their subject."""
    return {subject: one.sign for subject, one in of_rule(found, rule).items()}
