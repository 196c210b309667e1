"""Probes of a serving profile: their requests, what they measure, and when they are due."""
