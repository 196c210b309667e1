"""Lines of a unit's difference in messages."""

import pytest

from appliance.alerts.watchdog_rules.unit_lines import without_secrets


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("+Nice=5", "+Nice=5"),
        ("-Nice = 5", "-Nice = 5"),
        (" CPUQuota=50%", " CPUQuota=50%"),
        ("+[Service]", "+[Service]"),
        ('+Environment="HF_TOKEN=secret"', "+Environment=…"),
        ("+SetCredential=key:secret", "+SetCredential=…"),
        ("-ExecStart=/usr/bin/vllm --api-key secret", "-ExecStart=…"),
        ("+ExecStartPre=/bin/sh -c secret", "+ExecStartPre=…"),
        ("+  --api-key secret", "+…"),
        ("secret", "…"),
        ("", "…"),
    ],
)
def test_values_that_may_be_secret_are_left_out(line: str, shown: str) -> None:
    """Commands, environments and lines that continue them lose what they say."""
    assert without_secrets(line) == shown
