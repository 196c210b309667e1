"""Checker: asks the addresses that are watched, on other machines too (`appliance.wire.helpers`).

It holds no credential and no state. It runs while it is asked, and leaves a minute later.
"""
