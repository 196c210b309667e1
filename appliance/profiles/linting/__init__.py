"""Traps of profiles: combinations of settings that start and then fail, slow down or mislead; pure rules."""
