"""Modules of the verbs, one for each or for a few that share their work."""
