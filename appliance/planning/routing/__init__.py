"""Decisions about a client's request: which profile, what is changed in it, how it is refused."""
