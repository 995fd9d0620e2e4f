"""The commands, one file each: arguments, output and exit status only.

A module has `HELP` (text of --help), `add_arguments(parser)` and `run(arguments)`, which returns the exit status.
vllm_watch/__main__.py lists them.
"""
