"""Readers of headers of model files. No file makes them crash, hang or take much memory."""
