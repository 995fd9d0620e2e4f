"""The commands, one file each. They implement `helpers.commands.Command` and handle only arguments, output and exit status."""
