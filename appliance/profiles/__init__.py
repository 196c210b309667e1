"""Rules within and between profiles, and the compilation of profiles."""
