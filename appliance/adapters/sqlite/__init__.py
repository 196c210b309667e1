"""Operations and marks in SQLite, and the spool for a full disk."""
