"""Profiles as files: reading with checks, faults with their lines, and editing in place."""
