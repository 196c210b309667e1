"""Admission of a start: leases, obstacles, and the wait for memory."""
