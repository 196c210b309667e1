"""Code that engines share: the type of an engine, options, rules."""
