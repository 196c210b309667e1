"""Quality canaries: requests whose answers are checked, and the share of them that pass."""
