"""Questions to an engine's program about its own build."""
