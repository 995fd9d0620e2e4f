"""One command per file, with `HELP`, `add_arguments(parser)` and `run(arguments)`, which returns the exit status; vllm_watch/__main__.py lists them."""
