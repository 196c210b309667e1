"""Upstream side: connections to engines."""
