"""Command line: one grammar, and one module for each verb, imported only when that verb runs."""
