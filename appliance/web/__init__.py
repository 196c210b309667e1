"""The web process: API, metrics and page of the box, for people and programs on this machine.

It shows what the supervisor, the gateway and the health agent know, and has no rights beyond theirs.
What it changes it changes as the operator whose token a request has (`appliance.web.actions`).
"""
