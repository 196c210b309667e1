"""Files on disk: durable writes, and reads of what another user may have put there."""
