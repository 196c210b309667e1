"""Bytes of chance against the relay's parsers, in one process and in virtual time."""
