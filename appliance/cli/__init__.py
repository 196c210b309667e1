"""The command line: one grammar, one module a verb, imported only when that verb runs."""
