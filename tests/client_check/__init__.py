"""Check of the gateway with the clients that people have: ``make check-clients``."""
