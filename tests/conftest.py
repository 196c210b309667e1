"""Profiles of hypothesis: ``full`` is for `make nightly`, ``usual`` for `make test` and `make check`.

No deadline of its own: a machine that is busy with something else fails no test. Where a bound
on time is the point, the test measures CPU time.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

BUSY_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "full", max_examples=100, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.register_profile(
    "usual", max_examples=20, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.load_profile("usual")

LONGEST_FIRST = (
    "system/test_alerts.py",
    "system/test_not_in_force.py",
    "system/test_stalls.py",
    "system/test_boots.py",
    "system/test_crashes.py",
    "system/test_install.py",
    "system/test_supervisor_down.py",
    "system/test_gpu_holders.py",
    "system/test_agent_watched.py",
    "system/test_run.py",
    "system/test_exposed.py",
    "system/test_notifier.py",
    "system/test_gateway_service.py",
    "system/test_gpu_release.py",
    "system/test_units_contract.py",
    "system/test_control_crowd.py",
    "system/test_ledger.py",
    "system/test_embedded.py",
    "system/test_gateway_traffic.py",
    "system/test_ownership.py",
    "system/test_health_agent.py",
    "system/test_observations.py",
    "system/test_switch.py",
    "system/test_web.py",
    "system/test_gpu_readings.py",
    "system/test_privileges.py",
    "system/test_bad_input.py",
    "system/test_chaos.py",
    "system/test_many_profiles.py",
    "system/test_full_disk.py",
    "system/test_cli.py",
)
"""Files that take long, first those that mostly wait: one that came last would be waited for alone."""
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of long files first; the others stay in their order."""
    rank = {HERE / name: number for number, name in enumerate(LONGEST_FIRST)}
    if gone := [str(path) for path in rank if not path.exists()]:
        raise pytest.UsageError(f"LONGEST_FIRST in tests/conftest.py names {', '.join(gone)}")
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
