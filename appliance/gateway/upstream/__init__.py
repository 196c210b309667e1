"""Connections to engines."""
