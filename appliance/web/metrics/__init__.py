"""Metrics of the box in the text format of Prometheus."""
