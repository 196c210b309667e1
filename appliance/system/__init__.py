"""Adapters: each hides one outside thing, and translates its errors."""
