"""Live screens in a terminal: `appliance top` and `appliance status --watch`."""
