"""Text of units, drop-ins and polkit rule, and the edits of it that a profile may hold."""
