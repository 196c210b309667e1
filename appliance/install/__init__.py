"""Use cases of root: apply profiles, adopt hand edits, compile the gateway's settings."""
