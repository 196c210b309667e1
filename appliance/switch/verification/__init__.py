"""Verification of a running engine: its profile's facts against those that the engine reports."""
