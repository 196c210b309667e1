"""TOML files that people write: bounded parsing, lines of keys, sentences about faults."""
