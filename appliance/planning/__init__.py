"""Pure decisions. Time and observations are arguments."""
