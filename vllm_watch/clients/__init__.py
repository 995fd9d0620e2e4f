"""Clients of other programs: Kubernetes, etcd, webhooks."""
