"""TOML files that people write: read within bounds, keys traced to lines, faults in words."""
