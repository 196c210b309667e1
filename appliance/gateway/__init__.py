"""Process of the gateway: one address for clients, whichever profile serves."""
