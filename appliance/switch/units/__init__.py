"""Text of units, drop-ins and polkit rule, and the edits of them that a profile may hold."""
