"""Preflight: everything that speaks against a change, found before anything is touched."""
