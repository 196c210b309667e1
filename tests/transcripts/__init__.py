"""Documentation pages as transcripts: every command that they show is read, checked and played on a booted box."""
