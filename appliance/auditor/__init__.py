"""Auditor: tells the health agent which processes listen, and where (`appliance.wire.helpers`).

It alone may look at the sockets of every process. It runs while it is asked, makes no socket of its own,
and leaves a minute later.
"""
