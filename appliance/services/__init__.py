"""One loop each."""
