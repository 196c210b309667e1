"""Pure types: what the appliance talks about. No I/O, no clock."""
