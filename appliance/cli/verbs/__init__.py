"""One module for each verb, or for a few that share their work."""
