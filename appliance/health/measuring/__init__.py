"""Measurements of the models that serve: probes, canaries, evidence, real traffic."""
