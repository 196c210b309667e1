"""How thoroughly hypothesis looks: `make test` in full, `make check` a quarter of it.

No deadline of its own: a machine that is busy with something else fails no test. Where a bound
on time is the point, the test measures CPU time.
"""

from hypothesis import HealthCheck, settings

BUSY_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "full", max_examples=100, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.load_profile("full")
