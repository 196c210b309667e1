"""JSON Schemas of what the command prints with ``--json``: derived from the types that make it."""
