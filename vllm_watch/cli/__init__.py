"""The commands, one file each, with the interface `helpers.commands.Command`; only arguments, output and exit status."""
