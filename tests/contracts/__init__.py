"""Contracts of the ports: what holds for a fake holds for what it stands for."""
