"""Advice on settings from what was seen while an engine ran: not alarms. Pure."""
