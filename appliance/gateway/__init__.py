"""The gateway process: one address for clients, whatever serves behind it."""
