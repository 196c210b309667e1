"""Helpers that look and reach for the health agent: a process each, started by its socket, gone a minute after its last question."""
