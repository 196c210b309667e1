"""The data path: one address for clients, whatever serves behind it. A process of its own."""
