"""Profiles of hypothesis: `make test` searches in full, `make check` a quarter of that.

No deadline of its own: a machine that is busy with something else fails no test. Where a bound
on time is the point, the test measures CPU time.
"""

import signal

from hypothesis import HealthCheck, settings

BUSY_MACHINE = (HealthCheck.too_slow,)

settings.register_profile(
    "full", max_examples=100, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.register_profile(
    "quick", max_examples=25, deadline=None, suppress_health_check=BUSY_MACHINE
)
settings.load_profile("full")

# A shell has its background jobs ignore Ctrl-C, nohup the loss of the terminal, and every program
# that they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
