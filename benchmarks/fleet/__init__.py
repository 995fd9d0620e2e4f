"""A thousand engines under two hundred watchers, in virtual time."""
