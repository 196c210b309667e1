"""Store of operations and marks in SQLite, with a spool for a full disk."""
