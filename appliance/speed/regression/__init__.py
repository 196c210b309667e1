"""Regression of a model's speed: benign model, sessions, detector; pure, with time as an argument."""
