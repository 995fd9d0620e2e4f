"""Clients of other programs: Kubernetes, webhooks."""
