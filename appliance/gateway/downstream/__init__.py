"""Connections of clients: listeners, TLS handshakes, peers."""
