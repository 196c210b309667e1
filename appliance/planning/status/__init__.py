"""The status document and the sentences in it."""
