"""The commands. Each module implements `helpers.commands.Command`."""
