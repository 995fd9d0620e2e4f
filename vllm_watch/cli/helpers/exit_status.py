"""Exit statuses of every command."""

FINE = 0
FOUND = 1  # explained in each command's help
WRONG_USAGE = 2  # or invalid configuration, or no answer from a server
NO_GO = 3
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
