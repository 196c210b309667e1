"""Pure types of the domain. No I/O, no clock."""
