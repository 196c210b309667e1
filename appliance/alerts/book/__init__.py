"""Book of alerts: a state for each subject and rule, and who is told of its changes."""
