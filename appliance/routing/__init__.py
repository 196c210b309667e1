"""Decisions about a client's request: its profile, changes of its body, refusals, switches."""
