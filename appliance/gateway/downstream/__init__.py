"""Connections of clients: listeners, TLS, peers."""
