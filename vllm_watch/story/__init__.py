"""Every text about kinds of incidents and causes, as pure data."""
