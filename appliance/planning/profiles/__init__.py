"""Rules within and between profiles, and what a profile compiles to."""
