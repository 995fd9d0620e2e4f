"""Who holds GPU memory, and which of it is stale: judged from what a series of looks saw. Pure."""
