"""Process of the supervisor, the only writer of ownership."""
