"""Requests and answers made to be misread, and what has to become of each."""
