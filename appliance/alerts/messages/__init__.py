"""Messages to people: words, tokens of their buttons."""
