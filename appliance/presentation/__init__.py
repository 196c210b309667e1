"""Texts about the box that the command and the web process share: one wording for terminal and page."""
