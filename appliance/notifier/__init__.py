"""Notifier: the one process that has the targets' secrets, and reaches other machines with them.

Its socket starts it; it serves the health agent alone, and leaves after a minute without a request. It
decides nothing: what to send, when and how often is the agent's.
"""
