"""Rules about the health of a GPU."""

from typing import Any

import pytest

from appliance.alerts.gpu_rules import (
    ErrorTier,
    error_text,
    tier_of,
)
from appliance.alerts.snapshot import GpuError, GpuLook
from appliance.model.alerts import AlertRule, Finding, Severity, Sign
from tests.fakes.looks import CARD, NOW, box_look, gpu_look, later, looked, of_rule, signs_of

GOOD, BAD, UNKNOWN = Sign.GOOD, Sign.BAD, Sign.UNKNOWN
KEY = f"gpu:{CARD}"
HOLD, REBOOT = "appliance hold", "sudo systemctl reboot"


def found(rule: AlertRule, *gpus: GpuLook, every_s: float = 30.0) -> Finding:
    """Finding about the GPU after a look with each of these."""
    looks = [later(box_look(gpus=(gpu,)), n * every_s) for n, gpu in enumerate(gpus)]
    return of_rule(looked(looks), rule)[KEY]


def failed(*codes: int, ago_s: float = 5.0, **changes: Any) -> GpuLook:
    """GPU with XID errors; the driver tells no verdict unless the changes do."""
    errors = tuple(GpuError(xid=code, unix_s=NOW - ago_s) for code in codes)
    values: dict[str, Any] = {"errors": errors, "recovery_action": None}
    return gpu_look(**(values | {"uncorrected_errors": None} | changes))


# ── Lost ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("gpu", "sign"),
    [
        (gpu_look(), GOOD),
        (gpu_look(is_lost=True), BAD),
        (GpuLook(uuid=CARD, index=0), UNKNOWN),
        (GpuLook(uuid=CARD, index=0, temperature_c=40), GOOD),
        (GpuLook(uuid=CARD, index=0, is_lost=True), BAD),
    ],
)
def test_lost_gpu_is_told(gpu: GpuLook, sign: Sign) -> None:
    """A GPU of which the driver tells nothing is neither lost nor well."""
    assert found(AlertRule.GPU_LOST, gpu).sign is sign


def test_gpu_that_is_listed_no_more_is_lost() -> None:
    """The driver may list a GPU that has gone not at all; GPUs that cannot be read are not lost."""
    two = box_look(gpus=(gpu_look(), gpu_look(uuid="GPU-2", index=1)))
    one = later(box_look(), 30)
    signs = signs_of(looked([two, one]), AlertRule.GPU_LOST)
    assert signs == {KEY: GOOD, "gpu:GPU-2": BAD}
    blind = later(box_look(gpus=None), 30)
    assert signs_of(looked([two, blind]), AlertRule.GPU_LOST) == {}
    assert signs_of(looked([two, blind, later(one, 30)]), AlertRule.GPU_LOST) == signs


def test_gpu_that_is_missing_after_a_boot_was_taken_out() -> None:
    """A boot forgets which GPUs were there: somebody may have removed one."""
    two = box_look(gpus=(gpu_look(), gpu_look(uuid="GPU-2", index=1)))
    booted = box_look(monotonic_s=20.0)
    assert signs_of(looked([two, booted]), AlertRule.GPU_LOST) == {KEY: GOOD}


def test_lost_gpu_without_uuid_is_the_one_of_its_index() -> None:
    """A GPU that no longer tells its UUID keeps its subject; one that never did has its index."""
    lost = box_look(gpus=(GpuLook(uuid="", index=0, is_lost=True),))
    assert signs_of(looked([box_look(), later(lost, 30)]), AlertRule.GPU_LOST) == {KEY: BAD}
    assert signs_of(looked([lost]), AlertRule.GPU_LOST) == {"gpu:index-0": BAD}


def test_words_of_a_lost_gpu() -> None:
    """The fact names the GPU by its index, the details its name and its last errors."""
    one = found(AlertRule.GPU_LOST, failed(31, 62, 79), gpu_look(is_lost=True))
    assert one.fact == "lost: fallen off the bus (GPU 0)"
    assert one.details == (
        "RTX 3090",
        "XID 62 (a microcontroller has halted)",
        "XID 79 (fallen off the bus)",
    )
    assert (one.command, one.is_proven) == (REBOOT, True)


# ── The driver's verdict ────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("action", "sign", "fact", "command"),
    [
        (None, UNKNOWN, "", ""),
        ("none", GOOD, "", ""),
        ("gpu-reset", BAD, "the driver asks for a reset (GPU 0)", HOLD),
        ("node-reboot", BAD, "the driver asks for a reboot (GPU 0)", REBOOT),
        ("system-reboot", BAD, "the driver asks for a reboot (GPU 0)", REBOOT),
        ("bus-reset", BAD, "the driver asks for a reset of the PCIe bus (GPU 0)", REBOOT),
        ("drain-p2p", BAD, "the driver asks that other GPUs leave its memory (GPU 0)", HOLD),
        (
            "drain-and-reset",
            BAD,
            "the driver asks for a reset, with other GPUs off its memory (GPU 0)",
            HOLD,
        ),
        ("of-another-driver", BAD, "the driver asks for of-another-driver (GPU 0)", HOLD),
    ],
)
def test_recovery_that_the_driver_asks_for_is_told(
    action: str | None, sign: Sign, fact: str, command: str
) -> None:
    """Each action of the driver has words and a first command."""
    one = found(AlertRule.GPU_RECOVERY, gpu_look(recovery_action=action))
    assert (one.sign, one.fact, one.command) == (sign, fact, command)


def test_verdict_of_the_driver_tells_its_errors() -> None:
    """Where the driver asks for a recovery, the errors are in its alert alone."""
    gpu = failed(13, 31, 95, recovery_action="gpu-reset")
    one = found(AlertRule.GPU_RECOVERY, gpu)
    assert one.details == (
        "RTX 3090",
        "XID 31 (memory page fault of a program)",
        "XID 95 (memory error that may affect every program)",
        "then sudo nvidia-smi --gpu-reset -i 0; where that is refused, sudo systemctl reboot",
    )
    assert found(AlertRule.GPU_ERROR, gpu).sign is UNKNOWN
    reboot = found(AlertRule.GPU_RECOVERY, failed(79, recovery_action="node-reboot"))
    assert reboot.details == ("RTX 3090", "XID 79 (fallen off the bus)")


# ── XID errors ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "tier"),
    [
        (13, ErrorTier.APPLICATION),
        (31, ErrorTier.APPLICATION),
        (43, ErrorTier.NONE),
        (45, ErrorTier.NONE),
        (48, ErrorTier.RESET),
        (54, ErrorTier.HARDWARE),
        (62, ErrorTier.RESET),
        (63, ErrorTier.NONE),
        (64, ErrorTier.RESET),
        (79, ErrorTier.REBOOT),
        (94, ErrorTier.APPLICATION),
        (95, ErrorTier.RESET),
        (119, ErrorTier.RESET),
        (154, ErrorTier.NONE),
        (999, ErrorTier.APPLICATION),
    ],
)
def test_tier_is_that_of_the_catalogue(code: int, tier: ErrorTier) -> None:
    """The tiers are NVIDIA's immediate actions; what is not listed is told as an application's."""
    assert tier_of(code) is tier
    assert error_text(code).startswith(f"XID {code}")


@pytest.mark.parametrize(
    ("gpu", "sign", "severity"),
    [
        (gpu_look(errors=None), UNKNOWN, None),
        (failed(), GOOD, None),
        (failed(45), GOOD, None),
        (failed(31), BAD, Severity.WARNING),
        (failed(31, ago_s=599), BAD, Severity.WARNING),
        (failed(31, ago_s=600), GOOD, None),
        (failed(119), BAD, Severity.CRITICAL),
        (failed(119, ago_s=86_000), BAD, Severity.CRITICAL),
        (failed(119, ago_s=86_400), GOOD, None),
        (failed(79), BAD, Severity.CRITICAL),
        (failed(54), BAD, Severity.CRITICAL),
        (failed(79, is_lost=True), UNKNOWN, None),
        # The driver's verdict: nothing is to be done.
        (failed(119, recovery_action="none"), BAD, Severity.WARNING),
        (failed(119, recovery_action="none", ago_s=600), GOOD, None),
        (failed(54, recovery_action="none", ago_s=600), BAD, Severity.CRITICAL),
        # Errors of the memory are told with its counters, if it has any.
        (failed(48), BAD, Severity.CRITICAL),
        (failed(48, uncorrected_errors=0), GOOD, None),
    ],
)
def test_error_is_told_by_its_tier(gpu: GpuLook, sign: Sign, severity: Severity | None) -> None:
    """A program's error lasts for 10 min, another for a day, unless another rule tells it."""
    one = found(AlertRule.GPU_ERROR, gpu)
    assert (one.sign, one.severity) == (sign, severity)


@pytest.mark.parametrize(
    ("codes", "fact", "command"),
    [
        (
            (31,),
            "XID 31 (memory page fault of a program): a program has failed (GPU 0)",
            "appliance status",
        ),
        (
            (31, 119, 31),
            "XID 119 (its firmware does not answer): the GPU needs a reset (GPU 0)",
            HOLD,
        ),
        ((119, 79), "XID 79 (fallen off the bus): the box needs a reboot (GPU 0)", REBOOT),
        ((144,), "XID 144: the GPU needs a reset (GPU 0)", HOLD),
        (
            (79, 54),
            "XID 54 (auxiliary power is not connected): the card is at fault (GPU 0)",
            "nvidia-smi -q",
        ),
    ],
)
def test_worst_error_is_told(codes: tuple[int, ...], fact: str, command: str) -> None:
    """Of several errors the worst is in the fact; the details say who uses the GPU."""
    one = found(AlertRule.GPU_ERROR, failed(*codes))
    assert (one.fact, one.command) == (fact, command)
    assert one.details[:2] == ("RTX 3090", "used by genesis")
    unused = looked([box_look(gpus=(failed(*codes, uuid="GPU-2"),))])
    assert "used by genesis" not in of_rule(unused, AlertRule.GPU_ERROR)["gpu:GPU-2"].details


def test_errors_outlive_a_restart_of_the_supervisor_and_no_boot() -> None:
    """The supervisor forgets errors when it starts; a boot ends what they say."""
    assert found(AlertRule.GPU_ERROR, failed(119), failed()).sign is BAD
    assert found(AlertRule.GPU_ERROR, failed(119), gpu_look(errors=None)).sign is BAD
    old = found(AlertRule.GPU_ERROR, failed(31, ago_s=590), gpu_look(errors=None))
    assert old.sign is UNKNOWN
    booted = box_look(gpus=(failed(),), monotonic_s=20.0)
    signs = signs_of(looked([box_look(gpus=(failed(119),)), booted]), AlertRule.GPU_ERROR)
    assert signs == {KEY: GOOD}


# ── Memory errors ───────────────────────────────────────────────────────────

NONE_KNOWN: dict[str, Any] = {"uncorrected_errors": None, "remap_pending": None}


@pytest.mark.parametrize(
    ("before", "now", "sign", "severity"),
    [
        ({}, {}, GOOD, None),
        ({"uncorrected_errors": 7}, {"uncorrected_errors": 7}, GOOD, None),
        ({"uncorrected_errors": 7}, {"uncorrected_errors": 8}, BAD, Severity.CRITICAL),
        (NONE_KNOWN, {"uncorrected_errors": 8}, GOOD, None),
        ({}, {"remap_pending": True}, BAD, Severity.WARNING),
        ({}, {"remap_failed": True, "remap_pending": True}, BAD, Severity.CRITICAL),
        ({}, {"remap_failed": True, "uncorrected_errors": 1}, BAD, Severity.CRITICAL),
        (
            NONE_KNOWN | {"remap_failed": None},
            NONE_KNOWN | {"remap_failed": None},
            UNKNOWN,
            None,
        ),
    ],
)
def test_memory_error_is_told(
    before: dict[str, Any], now: dict[str, Any], sign: Sign, severity: Severity | None
) -> None:
    """A counter that grew, a row that waits, and one that could not be remapped are told."""
    one = found(AlertRule.ECC, gpu_look(**before), gpu_look(**now))
    assert (one.sign, one.severity) == (sign, severity)


def test_memory_error_is_told_for_a_day() -> None:
    """The counter never goes back: a day without a further error ends it."""
    looks = [box_look(), later(box_look(gpus=(gpu_look(uncorrected_errors=1),)), 30)]
    after = later(looks[1], 86_399)
    assert signs_of(looked([*looks, after]), AlertRule.ECC) == {KEY: BAD}
    assert signs_of(looked([*looks, after, later(after, 1)]), AlertRule.ECC) == {KEY: GOOD}


def test_words_of_a_memory_error() -> None:
    """The details have the count, and the error that the driver told with it."""
    codes = (48, 31, 94, 48)
    errors = tuple(GpuError(xid=code, unix_s=NOW + n) for n, code in enumerate(codes))
    one = found(AlertRule.ECC, gpu_look(), gpu_look(uncorrected_errors=1, errors=errors))
    assert one.fact == "memory errors that were not corrected (GPU 0)"
    assert one.details[:3] == (
        "RTX 3090",
        "uncorrected in the life of the card: 1",
        "XID 48 (uncorrectable memory error)",
    )
    assert one.details[3].startswith("then sudo nvidia-smi")
    assert (one.command, one.since_unix_s) == (HOLD, NOW + 30)
    failed_row = found(AlertRule.ECC, gpu_look(remap_failed=True))
    assert failed_row.command == REBOOT
    assert failed_row.details == ("RTX 3090",)


# ── Slowed down ─────────────────────────────────────────────────────────────

IDLE: dict[str, Any] = {"busy_share": 0.01}


@pytest.mark.parametrize(
    ("changes", "sign"),
    [
        ({"throttle_reasons": None}, UNKNOWN),
        ({"throttle_reasons": ()}, GOOD),
        ({"throttle_reasons": ("sw_power_cap", "applications_clocks_setting")}, GOOD),
        ({"throttle_reasons": ("sync_boost", "display_clock_setting", "bit_12")}, GOOD),
        ({"throttle_reasons": ("sw_thermal_slowdown",)}, BAD),
        ({"throttle_reasons": ("hw_slowdown", "hw_thermal_slowdown")}, BAD),
        ({"throttle_reasons": ("hw_power_brake_slowdown",)}, BAD),
        ({"throttle_reasons": ("hw_slowdown",)}, BAD),
        ({"throttle_reasons": ("hw_power_brake_slowdown",), **IDLE}, UNKNOWN),
        ({"throttle_reasons": ("gpu_idle",), **IDLE}, UNKNOWN),
        ({"throttle_reasons": ("gpu_idle", "sw_thermal_slowdown"), "busy_share": None}, UNKNOWN),
        ({"throttle_reasons": ("sw_thermal_slowdown",), "busy_share": None}, BAD),
        ({"throttle_reasons": ("sw_thermal_slowdown",), "busy_share": 0.5}, BAD),
        ({"throttle_reasons": ("sw_thermal_slowdown",), "busy_share": 0.49}, UNKNOWN),
        ({"throttle_reasons": (), "busy_share": None}, GOOD),
    ],
)
def test_gpu_that_is_slowed_down_under_load_is_told(changes: dict[str, Any], sign: Sign) -> None:
    """Heat and lack of power are faults; an idle GPU, a power cap and a clock that was set are none."""
    assert found(AlertRule.THROTTLE, gpu_look(**changes)).sign is sign


@pytest.mark.parametrize(("idle_s", "sign"), [(1799, UNKNOWN), (1800, GOOD)])
def test_gpu_at_rest_is_no_longer_slowed_down(idle_s: float, sign: Sign) -> None:
    """Half an hour without load ends it."""
    hot = gpu_look(throttle_reasons=("sw_thermal_slowdown",))
    rest = gpu_look(throttle_reasons=("gpu_idle",), **IDLE)
    assert found(AlertRule.THROTTLE, hot, rest, every_s=idle_s).sign is sign


def test_words_of_a_gpu_that_is_slowed_down() -> None:
    """The most telling reason is the fact, with temperature and power where they are known."""
    reasons = ("hw_slowdown", "hw_thermal_slowdown")
    one = found(AlertRule.THROTTLE, gpu_look(throttle_reasons=reasons))
    assert one.fact == "too hot, and slowed down by its hardware (GPU 0)"
    assert one.details == ("RTX 3090", "66 °C, 300 W")
    bare = gpu_look(throttle_reasons=reasons, temperature_c=None, power_w=None)
    assert found(AlertRule.THROTTLE, bare).details == ("RTX 3090",)


@pytest.mark.parametrize(
    ("before", "now", "sign"),
    [
        ({}, {}, GOOD),
        ({}, {"pcie_width": 4}, BAD),
        ({}, {"pcie_width": 4, "busy_share": 0.5}, BAD),
        ({}, {"pcie_width": 4, **IDLE}, UNKNOWN),
        ({}, {"pcie_width": 4, "busy_share": None}, UNKNOWN),
        ({}, {"pcie_width": None}, UNKNOWN),
        ({"pcie_width": 4}, {"pcie_width": 4}, GOOD),  # the slot has no more
        ({"pcie_width": 4}, {"pcie_width": 8}, GOOD),
        ({"pcie_width": 16, **IDLE}, {"pcie_width": 8}, GOOD),
        ({"pcie_width": None, "widest_pcie": 16}, {"pcie_width": 8}, BAD),
    ],
)
def test_link_that_is_narrower_than_before_is_told(
    before: dict[str, Any], now: dict[str, Any], sign: Sign
) -> None:
    """Widths are compared under load alone, with the widest that was seen."""
    one = found(AlertRule.PCIE, gpu_look(**before), gpu_look(**now))
    assert one.sign is sign
    if sign is BAD:
        assert one.fact.startswith("its PCIe link has ")
        assert one.fact.endswith(" lanes, 16 before (GPU 0)")


def test_width_is_remembered_over_boots() -> None:
    """A card that was moved to a narrower slot, or has lost lanes, is told after the boot."""
    narrow = box_look(gpus=(gpu_look(pcie_width=8),), monotonic_s=20.0)
    assert signs_of(looked([box_look(), narrow]), AlertRule.PCIE) == {KEY: BAD}
