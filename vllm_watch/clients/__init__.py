"""Clients for Kubernetes and webhooks."""
