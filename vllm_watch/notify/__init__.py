"""Notifications for sites without an Alertmanager."""
