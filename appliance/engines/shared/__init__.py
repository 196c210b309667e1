"""What engines have in common: the form of an engine, and words that several of them use."""
