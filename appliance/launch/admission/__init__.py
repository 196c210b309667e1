"""Whether a start may go ahead: leases, what stands in its way, and the wait for memory."""
