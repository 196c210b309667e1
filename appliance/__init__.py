"""One box, one owner of its GPUs: local language models as ordinary systemd units."""

__version__ = "0.1.0"
