"""Requests between client and engine: exchange, reply, hold queue, limits."""
