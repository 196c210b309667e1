"""Proposals of profiles: the settings with which a model fits this box."""
