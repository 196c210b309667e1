"""Looks at the box, and the loop that has them judged."""
