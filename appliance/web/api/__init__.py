"""Status API: JSON resources below /api/v1, and the two checks for those who watch the process."""
