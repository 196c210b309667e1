"""Process of the health agent, which measures serving models and may start or stop nothing."""
