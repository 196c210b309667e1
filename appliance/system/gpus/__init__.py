"""GPUs through their drivers, read in a child process that may hang."""
