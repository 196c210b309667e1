"""Delivery of messages, and what tells when nobody else can."""
