"""The commands, one file each: arguments, output and exit status only.

A command module has `HELP` (text and examples of its --help), `add_arguments(parser)` and `run(arguments)`, which
returns the exit status. vllm_watch/__main__.py lists them.
"""
