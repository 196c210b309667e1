"""Alerting: what is wrong, who is told, when, and in which words; pure, with the time as an argument."""
