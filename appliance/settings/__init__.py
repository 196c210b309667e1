"""Settings of the box: schema of its file, and the snapshot that daemons work with."""
