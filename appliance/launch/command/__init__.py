"""Command of an operator: the connection to its caller, and its execution as that user."""
