"""What can be set: the pieces of the configuration, each checked on its own and explained."""
