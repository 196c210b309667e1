"""Relay: exchanges between clients and engines, hold queue, shared capacity."""
