"""Status document, and the sentences in it."""
