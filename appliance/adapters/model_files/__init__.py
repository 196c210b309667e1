"""Headers of model files. No content of a file makes these readers crash, hang or take much memory."""
