"""Text of the units, drop-ins and polkit rule that apply writes, and what of it may be edited."""
