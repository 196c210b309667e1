"""Steps of one start of an engine, from patches to READY."""
