"""The commands, one file each. Each implements `helpers.commands.Command`."""
