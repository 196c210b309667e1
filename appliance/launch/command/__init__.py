"""An operator's command: the connection to its caller, and its execution as that user."""
