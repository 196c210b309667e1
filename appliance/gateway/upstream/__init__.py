"""Connections to engines, and their pool."""
