"""Profiles as files: read and checked, every fault with its line, and edited in place."""
