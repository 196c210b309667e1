"""Files on disk: durable writes, reads in places that another user can write, access by engines."""
