"""Page of the box for a browser."""
