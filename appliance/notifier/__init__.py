"""Notifier: the one process that has the targets' secrets, and reaches other machines with them.

It is started by its socket, serves the health agent alone, and leaves when nothing has been asked for a
minute. It decides nothing: what to send, when and how often is the agent's.
"""
