"""Pure decisions; time and observations are arguments."""
