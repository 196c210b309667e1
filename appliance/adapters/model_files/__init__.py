"""The headers of model files. Nothing in a file can make these crash, hang or take much memory."""
