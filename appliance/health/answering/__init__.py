"""Answers to operators on health.sock."""
