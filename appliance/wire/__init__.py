"""Formats of the sockets between the processes: standard library only."""
