"""Decisions about a client's request: profile, changes of the body, refusals, switches."""
