"""Decisions of one operation: what it stops and starts, its next action, repair after a crash."""
