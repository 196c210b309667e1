"""Reading of TOML files that people write: bounded parsing, lines of keys, texts of faults."""
