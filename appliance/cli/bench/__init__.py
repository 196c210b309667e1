"""Benchmarks of profiles through the gateway: loads, leases, screens and files."""
