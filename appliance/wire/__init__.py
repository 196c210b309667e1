"""Formats of the sockets and files between the processes, their servers and their clients."""
