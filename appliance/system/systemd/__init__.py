"""Adapters of systemd: the bus, systemctl, unit files, notifications, the journal."""
