"""Probe lane: requests of the health agent to engines, behind every request of a client."""
