"""Appliance for one box, with one owner of its GPUs: language models as ordinary systemd units."""

__version__ = "0.1.0"
