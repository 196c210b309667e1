"""Estimates of a model's memory from the headers of its files; no I/O."""
