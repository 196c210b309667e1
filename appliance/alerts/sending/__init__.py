"""Outbox: order, retries and joining of what targets are told."""
