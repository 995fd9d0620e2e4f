"""Notifications for sites without an Alertmanager: decide what is due, batch, send, record."""
