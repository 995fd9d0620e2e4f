"""Telling people, where no Alertmanager does it: what is due, one message of many, sent, and remembered."""
