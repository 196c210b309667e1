"""Benchmarks: what is asked, and the arithmetic of what came of it."""
