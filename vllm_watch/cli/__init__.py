"""The commands, one file each. They implement `helpers.commands.Command`: arguments, output and exit status only."""
