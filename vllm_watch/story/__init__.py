"""All texts about kinds of incidents and their causes."""
