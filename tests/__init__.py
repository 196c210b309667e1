"""Tests, benchmarks and checks of the appliance."""

import signal

# A shell has its background jobs ignore Ctrl-C, nohup the loss of the terminal, and every program
# that they start inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
