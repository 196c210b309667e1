"""Files that apply compiled for the daemons: the manifest and the gateway's settings."""
