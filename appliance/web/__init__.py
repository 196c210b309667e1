"""The web process: API, metrics and page of the box, for people and programs on this machine.

It shows what the supervisor, the gateway and the health agent know, and has no rights beyond theirs.
"""
